"""COPY FROM STDIN: the client's bytes are split and parsed away from the loop, piece by piece, in order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

from layby.adapter.constraints import check_rows
from layby.adapter.copy_format import CopyParser
from layby.adapter.environment import Environment
from layby.errors import SqlError
from layby.expr.evaluate import evaluate
from layby.expr.scalar import Literal, with_values
from layby.sql.catalog import Table
from layby.sql.plan import CopyPlan
from layby.types.column import Column, TextColumn, concat, empty_column
from layby.types.formats import parse_column

if TYPE_CHECKING:
    from layby.adapter.session import Session

_PIECE: Final = 1 << 20
"""Bytes that are parsed in one job."""

_MOST_UNPARSED: Final = 16 << 20
"""Bytes from which on the sender is asked to pause; it is told to resume at half."""


class CopyIn:
    """The sink of one COPY: `received` gets all rows once they are checked, or `failed` the error.

    Bytes wait in `_waiting`; one job at a time parses what waits, so pieces are taken in order.
    """

    def __init__(
        self,
        session: Session,
        table: Table,
        plan: CopyPlan,
        received: Callable[[Sequence[Column], int], None],
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
        self._waiting: list[bytes] = []
        self._unparsed = 0
        self._paused = False
        self._parsing = False
        self._finishing = False
        self._over = False
        self._parts: list[list[Column]] = []
        self._rows = 0

    def feed(self, data: bytes) -> bool:
        """Take the next bytes; False asks the sender to pause until `on_ready` is called."""
        if self._over:
            return True
        self._waiting.append(data)
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
        if self._parsing or self._over:
            return
        self._parsing = True
        data, self._waiting = self._waiting, []
        size, last = sum(map(len, data)), self._finishing
        self._coordinator.run_apart(lambda: self._job(data, last=last), lambda r: self._parsed(r, size, last))

    def _job(self, data: list[bytes], *, last: bool) -> tuple[list[Column], int] | None:
        """Parse some bytes, away from the loop; at the end also put all rows together and check them."""
        for piece in data:
            self._parser.feed(piece)
        if last:
            self._parser.finish()
        texts = self._parser.take()
        if texts is not None and len(texts[0]):
            self._parts.append(
                [self._typed(number, text) for number, text in zip(self._numbers, texts, strict=True)]
            )
            self._rows += len(texts[0])
        if not last:
            return None
        return self._complete(), self._rows

    def _typed(self, number: int, text: TextColumn) -> Column:
        desc = self._table.desc.columns[number]
        column, errors = parse_column(desc.type, text)
        if errors:
            row = min(errors)
            error = errors[row]
            line = self._parser.line_of(row)
            error.context = f'COPY {self._table.name}, line {line}, column {desc.name}: "{text.value(row)}"'
            raise error
        return column

    def _complete(self) -> list[Column]:
        columns: list[Column] = []
        for i, desc in enumerate(self._table.desc.columns):
            if i in self._numbers:
                at = self._numbers.index(i)
                parts = [part[at] for part in self._parts]
                columns.append(concat(parts) if parts else empty_column(desc.type))
            else:
                vector = evaluate(self._defaults[i], (), self._rows)
                column = vector.column
                if vector.errors is not None:
                    raise vector.errors.errors[0]
                if vector.constant:
                    column = column.take(np.zeros(self._rows, np.int64))
                columns.append(column)
        self._parts.clear()
        check_rows(self._table, columns)
        return columns

    def _parsed(self, result: object, size: int, last: bool) -> None:
        self._parsing = False
        self._unparsed -= size
        if self._over:
            return
        if isinstance(result, SqlError):
            self.abort(result)
            return
        if isinstance(result, Exception):
            self.abort(SqlError("XX000", f"COPY raised {type(result).__name__}: {result}"))
            return
        if last and isinstance(result, tuple):
            self._over = True
            columns, rows = result
            self._received(columns, rows)
            return
        if self._unparsed >= _PIECE or self._finishing:
            self._parse()
        if self._paused and self._unparsed <= _MOST_UNPARSED // 2:
            self._paused = False
            if self.on_ready is not None:
                self.on_ready()
