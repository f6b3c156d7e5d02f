"""Session variables: what SET and SHOW know beside the system parameters."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from layby import __version__
from layby.errors import SqlError
from layby.sql.names import NAME_LIMIT

SERVER_VERSION: Final = f"15.0 (layby {__version__})"
"""Clients choose their dialect by it: layby speaks that of PostgreSQL 15."""

_MAX_MS: Final = 2**31 - 1
_TIME_UNITS: Final = {"": 1.0, "us": 0.001, "ms": 1.0, "s": 1e3, "min": 6e4, "h": 3.6e6, "d": 8.64e7}


@dataclass(frozen=True, slots=True)
class Variable:
    """One session variable. `check` returns the value to keep, or raises SqlError 22023.

    `shown` is its name as SHOW heads the column and ParameterStatus reports it; `reported` variables are
    told to the client at each change.
    """

    shown: str
    default: str
    check: Callable[[str, str], str]
    description: str
    reported: bool = False


def _any(name: str, value: str) -> str:  # noqa: ARG001
    return value


def _name(name: str, value: str) -> str:  # noqa: ARG001
    """Cut a name to what an identifier may take, and put ? for each byte that is not printable ASCII."""
    kept = value.encode("utf-8", "replace")[:NAME_LIMIT].decode(errors="ignore")
    return re.sub(rb"[^ -~]", b"?", kept.encode()).decode()


def _encoding(name: str, value: str) -> str:
    """Accept the spellings of UTF8: only letters and digits count, as in PostgreSQL."""
    if re.sub(r"[\W_]", "", value).lower() in ("utf8", "unicode"):
        return "UTF8"
    raise _only_known(name, value, "UTF8")


def _one_of(*allowed: str, says: str | None = None) -> Callable[[str, str], str]:
    def check(name: str, value: str) -> str:
        found = re.sub(r"\s+", " ", value.strip().lower())
        if found not in allowed:
            raise SqlError(
                "22023",
                f'invalid value for parameter "{name}": "{value}"',
                hint=f"Available values: {', '.join(allowed)}." if says is None else says,
            )
        return found

    return check


def _boolean(name: str, value: str) -> str:
    word = value.strip().lower()
    if word in ("on", "true", "yes", "1", "t"):
        return "on"
    if word in ("off", "false", "no", "0", "f"):
        return "off"
    raise SqlError("22023", f'parameter "{name}" requires a Boolean value')


def _only(kept: str, *allowed: str) -> Callable[[str, str], str]:
    """Accept values that all mean what layby does anyway."""

    def check(name: str, value: str) -> str:
        if value.strip().lower() not in allowed:
            raise _only_known(name, value, kept)
        return kept

    return check


def _only_known(name: str, value: str, kept: str) -> SqlError:
    return SqlError(
        "22023", f'invalid value for parameter "{name}": "{value}"', detail=f"layby knows {kept} only."
    )


def _integer(minimum: int, maximum: int) -> Callable[[str, str], str]:
    def check(name: str, value: str) -> str:
        try:
            number = int(value)
        except ValueError:
            raise SqlError("22023", f'invalid value for parameter "{name}": "{value}"') from None
        if not minimum <= number <= maximum:
            raise SqlError(
                "22023",
                f'{number} is outside the valid range for parameter "{name}" ({minimum} .. {maximum})',
            )
        return str(number)

    return check


def _duration(name: str, value: str) -> str:
    match = re.fullmatch(r"\s*(-?\d+(?:\.\d+)?)\s*([a-z]*)\s*", value)
    if match is None or match[2] not in _TIME_UNITS:
        raise SqlError(
            "22023",
            f'invalid value for parameter "{name}": "{value}"',
            hint='Valid units for this parameter are "us", "ms", "s", "min", "h", and "d".',
        )
    number = round(float(match[1]) * _TIME_UNITS[match[2]])
    if not 0 <= number <= _MAX_MS:
        raise SqlError(
            "22023", f'{number} ms is outside the valid range for parameter "{name}" (0 ms .. {_MAX_MS} ms)'
        )
    for unit, size in (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1000)):
        if number and number % size == 0:
            return f"{number // size}{unit}"
    return f"{number}ms" if number else "0"


def _read_only(name: str, value: str) -> str:  # noqa: ARG001
    raise SqlError("55P02", f'parameter "{name}" cannot be changed')


def milliseconds(value: str) -> int:
    """Return a checked duration in milliseconds."""
    match = re.fullmatch(r"(\d+)([a-z]*)", value)
    return 0 if match is None else round(int(match[1]) * _TIME_UNITS[match[2]])


ISOLATION_LEVELS: Final = (
    "strict serializable",
    "serializable",
    "repeatable read",
    "read committed",
    "read uncommitted",
)

VARIABLES: Final = {
    v.shown.lower(): v
    for v in (
        Variable("application_name", "", _name, "The client's name for itself.", reported=True),
        Variable("bytea_output", "hex", _one_of("hex", "escape"), "Has no effect: there is no bytea."),
        Variable("check_function_bodies", "on", _boolean, "Has no effect: there are no SQL functions."),
        Variable("client_encoding", "UTF8", _encoding, "The client's encoding.", reported=True),
        Variable(
            "client_min_messages",
            "notice",
            _one_of("debug5", "debug4", "debug3", "debug2", "debug1", "log", "notice", "warning", "error"),
            "The least severe message that is sent to the client.",
        ),
        Variable(
            "DateStyle",
            "ISO, MDY",
            _only("ISO, MDY", "iso", "iso, mdy", "iso,mdy", "mdy"),
            "The output format of dates.",
            reported=True,
        ),
        Variable(
            "default_transaction_isolation",
            "strict serializable",
            _one_of(*ISOLATION_LEVELS),
            "The isolation level of new transactions.",
        ),
        Variable(
            "default_transaction_read_only",
            "off",
            _boolean,
            "Whether new transactions may not write.",
            reported=True,
        ),
        Variable(
            "extra_float_digits", "1", _integer(-15, 3), "Has no effect: floats are shown shortest-exact."
        ),
        Variable(
            "idle_in_transaction_session_timeout", "0", _duration, "Has no effect yet; kept for clients."
        ),
        Variable("in_hot_standby", "off", _read_only, "There are no standbys.", reported=True),
        Variable("integer_datetimes", "on", _read_only, "Timestamps are integers.", reported=True),
        Variable(
            "IntervalStyle",
            "postgres",
            _only("postgres", "postgres"),
            "The output format of intervals.",
            reported=True,
        ),
        Variable("is_superuser", "on", _read_only, "There is one user.", reported=True),
        Variable("lock_timeout", "0", _duration, "Has no effect yet; kept for clients."),
        Variable("max_identifier_length", "63", _read_only, "The longest identifier."),
        Variable("row_security", "on", _boolean, "Has no effect: there are no policies."),
        Variable("search_path", '"$user", public', _any, "The schemas that names are looked up in."),
        Variable("server_encoding", "UTF8", _read_only, "The server's encoding.", reported=True),
        Variable("server_version", SERVER_VERSION, _read_only, "The server's version.", reported=True),
        Variable("server_version_num", "150000", _read_only, "The server's version as a number."),
        Variable(
            "standard_conforming_strings",
            "on",
            _only("on", "on", "true", "yes", "1"),
            "Backslashes in string literals are plain characters.",
            reported=True,
        ),
        Variable("statement_timeout", "0", _duration, "How long a statement may take; 0 is no limit."),
        Variable("synchronous_commit", "on", _one_of("on", "off", "local"), "Has no effect yet."),
        Variable(
            "TimeZone",
            "UTC",
            _only("UTC", "utc", "etc/utc", "gmt", "etc/gmt", "z", "zulu", "0", "+00", "+00:00"),
            "The time zone of timestamptz.",
            reported=True,
        ),
        Variable(
            "transaction_isolation",
            "strict serializable",
            _one_of(*ISOLATION_LEVELS),
            "The isolation level of the transaction: reads and writes are strict serializable at every one.",
        ),
        Variable("transaction_read_only", "off", _boolean, "Whether the transaction may not write."),
    )
}

MODES: Final = ("transaction_isolation", "transaction_read_only")
"""What a transaction's modes are kept in, for as long as it lasts."""


class SessionVariables:
    """One session's values, with what SET LOCAL and a rolled back SET have to restore."""

    def __init__(self) -> None:
        self._start: dict[str, str] = {}
        self._values: dict[str, str] = {}
        self._before_transaction: dict[str, str] | None = None
        self._before_local: dict[str, str] = {}
        self.changes: dict[str, str] = {}
        """Reported variables that changed since they were last taken, under the name they are shown by."""

    def get(self, name: str) -> str | None:
        """Return a value as SHOW prints it, None where there is no such variable."""
        variable = VARIABLES.get(name)
        if variable is None:
            return None
        return self._values.get(name, self._start.get(name, variable.default))

    def start_with(self, name: str, value: str) -> None:
        """Take a value from the client's startup message: what RESET goes back to."""
        self._start[name] = VARIABLES[name].check(name, value)

    def set(self, name: str, value: str | None, *, local: bool = False) -> None:
        """Set a variable, or with None reset it; raises SqlError 22023 with the old value kept."""
        variable = VARIABLES[name]
        new = (
            self._start.get(name, variable.default)
            if value is None
            else variable.check(variable.shown, value)
        )
        old = self.get(name)
        if local and name not in self._before_local:
            self._before_local[name] = old or ""
        elif not local:
            self._before_local.pop(name, None)
        self._put(name, new)

    def reset_all(self) -> None:
        """Go back to the session's start."""
        for name in list(self._values):
            self.set(name, None)

    def begin(self) -> None:
        """Remember the values that a rollback goes back to."""
        self._before_transaction = dict(self._values)

    def end(self, *, committed: bool) -> None:
        """End the transaction: undo SET LOCAL, and every SET where it rolled back."""
        local, self._before_local = self._before_local, {}
        before, self._before_transaction = self._before_transaction, None
        if not committed and before is not None:
            for name in set(self._values) | set(before):
                self._put(name, before.get(name, self._start.get(name, VARIABLES[name].default)))
            return
        for name, value in local.items():
            self._put(name, value)

    def reported(self) -> dict[str, str]:
        """Return all reported variables, under the names they are shown by."""
        return {v.shown: self.get(name) or "" for name, v in VARIABLES.items() if v.reported}

    def _put(self, name: str, value: str) -> None:
        if self.get(name) != value:
            self._values[name] = value
            if VARIABLES[name].reported:
                self.changes[VARIABLES[name].shown] = value
