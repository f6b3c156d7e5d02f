"""The control plane's pages, as a Starlette application without a socket."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route


def control_app(healthy: Callable[[], bool], registry: CollectorRegistry) -> Starlette:
    """The application: `/healthz` (200 `ok`, or 503 where `healthy` says no) and `/metrics`.

    `healthy` and the registry's collectors are called on the control plane's thread, so they read what
    other threads write without a lock and must take no longer than a scrape may.
    """

    async def healthz(_: Request) -> Response:
        if healthy():
            return PlainTextResponse("ok\n")
        return PlainTextResponse("unavailable\n", status_code=503)

    async def metrics(_: Request) -> Response:
        return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)

    return Starlette(routes=[Route("/healthz", healthz), Route("/metrics", metrics)])
