"""COPY FROM STDIN: the client's bytes are split and parsed away from the loop, piece by piece, in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

from layby.adapter.copy_format import CopyParser
from layby.adapter.environment import Environment
from layby.adapter.jobs import CompleteCopy, ParseCopy
from layby.compute.arrangement import Updates
from layby.errors import InternalError, SqlError
from layby.expr.scalar import Literal, with_values
from layby.sql.catalog import Table
from layby.sql.plan import CopyPlan
from layby.types.column import Column

if TYPE_CHECKING:
    from layby.adapter.session import Session

_PIECE: Final = 1 << 20
"""Bytes from which on there is a job to parse them; it gets less than twice as many."""

_MOST_UNPARSED: Final = 16 << 20
"""Bytes from which on the sender is asked to pause; it is told to resume at half."""


class CopyIn:
    """The sink of one COPY: `received` gets all rows once they are checked, or `failed` the error.

    Bytes wait in `_waiting`; one job at a time parses what is longest there, so pieces are taken in order.
    """

    def __init__(
        self,
        session: Session,
        table: Table,
        plan: CopyPlan,
        received: Callable[[Updates], None],
        failed: Callable[[SqlError], None],
    ) -> None:
        self.on_ready: Callable[[], None] | None = None
        self._coordinator = session.coordinator
        self._table = table
        self._numbers = plan.columns
        self._received = received
        self._failed = failed
        names = tuple(table.desc.columns[i].name for i in plan.columns)
        self._parser = CopyParser(plan.options, table.name, names)
        environment = Environment(session)
        self._defaults = {
            i: Literal(None, c.type) if default is None else with_values(default, (), environment)
            for i, (c, default) in enumerate(zip(table.desc.columns, table.defaults, strict=True))
            if i not in plan.columns
        }
        self._waiting: deque[memoryview] = deque()
        self._unparsed = 0
        self._paused = False
        self._parsing = False
        self._finishing = False
        self._over = False
        self._parts: list[Sequence[Column]] = []

    def feed(self, data: bytes) -> bool:
        """Take the next bytes; False asks the sender to pause until `on_ready` is called."""
        if self._over:
            return True
        whole = memoryview(data)
        self._waiting.extend(whole[at : at + _PIECE] for at in range(0, len(data), _PIECE))
        self._unparsed += len(data)
        if self._unparsed >= _PIECE:
            self._parse()
        self._paused = self._unparsed > _MOST_UNPARSED
        return not self._paused

    def finish(self) -> None:
        """End the data; the outcome follows."""
        self._finishing = True
        self._parse()

    def abort(self, error: SqlError) -> None:
        """Give up; nothing is written."""
        if not self._over:
            self._over = True
            self._waiting.clear()
            self._parts.clear()
            self._failed(error)

    def _parse(self) -> None:
        """Have what waits parsed, unless a job is under way: one at a time, so pieces are taken in order."""
        if self._parsing or self._over:
            return
        self._parsing = True
        pieces, size = list[memoryview](), 0
        while self._waiting and size < _PIECE:
            pieces.append(self._waiting.popleft())
            size += len(pieces[-1])
        data = np.frombuffer(b"".join(pieces), np.uint8)
        last = self._finishing and not self._waiting
        arena = self._coordinator.maintenance.arena
        job = ParseCopy(self._table, self._numbers, self._parser, arena.place(data), last)
        self._coordinator.run_apart(job, lambda result: self._parsed(result, size, last=last))

    def _parsed(self, result: object, size: int, *, last: bool) -> None:
        self._parsing = False
        self._unparsed -= size
        if self._over or self._refused(result) or not isinstance(result, tuple):
            return
        self._parser, columns = result
        if columns is not None:
            self._parts.append(columns)
        if last:
            count = self._parser.row_count
            parts, self._parts = tuple(self._parts), []
            job = CompleteCopy(self._table, self._numbers, parts, count, self._defaults)
            self._coordinator.run_apart(job, self._completed)
            return
        if self._unparsed >= _PIECE or self._finishing:
            self._parse()
        if self._paused and self._unparsed <= _MOST_UNPARSED // 2:
            self._paused = False
            if self.on_ready is not None:
                self.on_ready()

    def _completed(self, result: object) -> None:
        if self._over or self._refused(result) or not isinstance(result, Updates):
            return
        self._over = True
        self._received(result)

    def _refused(self, result: object) -> bool:
        """Give up where a job raised."""
        if isinstance(result, SqlError):
            self.abort(result)
        elif isinstance(result, Exception):
            self.abort(InternalError(f"COPY raised {type(result).__name__}: {result}"))
        return isinstance(result, Exception)
