"""The first packet of a session: who, where, and which version of the protocol."""

from __future__ import annotations

import re

from layby.errors import SqlError
from layby.pgwire.backend import negotiate_protocol_version
from layby.pgwire.codec import StartupPacket

_ARGUMENT = re.compile(r"(?:[^\s\\]|\\.)+", re.DOTALL)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_TRUE = frozenset({"1", "on", "true", "yes", "database"})


def negotiate(packet: StartupPacket) -> tuple[str, str, dict[str, str], bytes]:
    """Return user, database, session parameters, and the message that answers a newer protocol (or b"").

    Raises `SqlError` for a version that is not served (0A000) and for a packet that names no user (28000).
    """
    if packet.major != 3:
        raise SqlError(
            "0A000",
            f"unsupported frontend protocol {packet.major}.{packet.minor}: server supports 3.0 to 3.0",
        )
    given = dict(packet.parameters)
    unknown = [name for name in given if name.startswith("_pq_.")]
    for name in unknown:
        del given[name]
    user = given.pop("user", "")
    if not user:
        raise SqlError("28000", "no PostgreSQL user name specified in startup packet")
    database = given.pop("database", "") or user
    if given.pop("replication", "").lower() in _TRUE:
        raise SqlError("0A000", "replication connections are not supported")
    parameters = read_options(given.pop("options", "")) | given
    answer = negotiate_protocol_version(0, unknown) if unknown or packet.minor else b""
    return user, database, parameters, answer


def read_options(options: str) -> dict[str, str]:
    """Read `-c name=value` and `--name=value`, as libpq's `options` has them; a backslash keeps a space."""
    arguments = [_ESCAPED.sub(r"\1", argument) for argument in _ARGUMENT.findall(options)]
    parameters: dict[str, str] = {}
    rest = iter(arguments)
    for argument in rest:
        if argument == "-c":
            setting = next(rest, "")
        elif argument.startswith(("-c", "--")):
            setting = argument[2:]
        else:
            setting = ""
        name, equals, value = setting.partition("=")
        if not equals or not name:
            raise SqlError("42601", f"invalid command-line argument for server process: {argument}")
        parameters[name.replace("-", "_")] = value
    return parameters
