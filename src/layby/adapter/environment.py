"""The values that a session supplies to a statement: `now()`, `current_user`, `current_setting(...)`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

from layby.adapter.transaction import now_us
from layby.errors import SqlError
from layby.types.scalar import PhysicalValue

if TYPE_CHECKING:
    from layby.adapter.session import Session

_DAY_US: Final = 86_400_000_000
_SETTING: Final = "setting:"


class Environment(Mapping[str, PhysicalValue]):
    """Session values by name, looked up only as a plan asks for them; one for each statement."""

    __slots__ = ("_now", "_session")

    def __init__(self, session: Session) -> None:
        self._session = session
        self._now: int | None = None

    def __getitem__(self, name: str) -> PhysicalValue:
        session = self._session
        match name:
            case "now":
                transaction = session.block.transaction
                return self._statement_us() if transaction is None else transaction.started_us
            case "statement_timestamp":
                return self._statement_us()
            case "current_date":
                transaction = session.block.transaction
                now = self._statement_us() if transaction is None else transaction.started_us
                return now // _DAY_US
            case "current_user" | "session_user":
                return session.user
            case "current_database":
                return "layby"
            case "current_schema":
                return "public"
            case "pg_backend_pid":
                return session.process_id
        if name.startswith(_SETTING):
            setting = name[len(_SETTING) :].lower()
            value = session.variables.get(setting)
            return session.coordinator.parameters.show(setting) if value is None else value
        raise SqlError("42704", f'unrecognized session value "{name}"')

    def _statement_us(self) -> int:
        """Return the statement's time, the same however often it asks."""
        if self._now is None:
            self._now = now_us()
        return self._now

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0
