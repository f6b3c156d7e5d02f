"""The control plane, over real sockets."""

from __future__ import annotations

import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest
from prometheus_client import CollectorRegistry, Counter

from layby.http.app import control_app
from layby.http.control import ControlPlane

HOST = "127.0.0.1"


class Health:
    """What the server under the control plane says of itself."""

    well = True

    def __call__(self) -> bool:
        return self.well


@pytest.fixture
def health() -> Health:
    return Health()


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


@pytest.fixture
def control(health: Health, registry: CollectorRegistry) -> Iterator[ControlPlane]:
    running = ControlPlane(control_app(health, registry), HOST, 0)
    yield running
    running.close()


def get(control: ControlPlane, path: str) -> tuple[int, str, str]:
    """The status, the content type and the text of a page."""
    try:
        with urllib.request.urlopen(f"http://{HOST}:{control.port}{path}", timeout=30) as page:
            return page.status, page.headers["content-type"], page.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.headers["content-type"], error.read().decode()


def test_a_healthy_server_says_ok(control: ControlPlane) -> None:
    assert get(control, "/healthz")[::2] == (200, "ok\n")


def test_an_unhealthy_server_says_503_and_recovers(control: ControlPlane, health: Health) -> None:
    health.well = False
    assert get(control, "/healthz")[0] == 503

    health.well = True
    assert get(control, "/healthz")[0] == 200


def test_metrics_are_those_of_the_registry_at_the_time(
    control: ControlPlane, registry: CollectorRegistry
) -> None:
    counter = Counter("layby_things", "Things.", registry=registry)
    counter.inc(3)

    status, content_type, text = get(control, "/metrics")

    assert status == 200
    assert content_type.startswith("text/plain; version=")
    assert "layby_things_total 3.0\n" in text
    counter.inc()
    assert "layby_things_total 4.0\n" in get(control, "/metrics")[2]


def test_other_pages_are_not_found(control: ControlPlane) -> None:
    assert get(control, "/")[0] == 404


def test_a_port_in_use_is_an_error_of_the_caller(control: ControlPlane, health: Health) -> None:
    with pytest.raises(OSError, match="in use"):
        ControlPlane(control_app(health, CollectorRegistry()), HOST, control.port)


def test_a_closed_control_plane_listens_no_more(health: Health) -> None:
    control = ControlPlane(control_app(health, CollectorRegistry()), HOST, 0)
    control.close()

    with pytest.raises(urllib.error.URLError, match="refused"):
        get(control, "/healthz")
