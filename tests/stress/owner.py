"""What a session does with tables of its own: it knows their contents exactly, so every answer is checked."""

from __future__ import annotations

from collections.abc import Callable

from tests.stress.client import CANCELLED, Client, Finding, Refused
from tests.stress.model import COLUMNS, Row, TableModel, many_rows, many_rows_sql, question, some_rows

_MOST_ROWS = 12_000
_MOST_TABLES = 2


class Owner:
    """Creates, fills, reads, changes and drops tables that nobody else touches.

    Only the owner writes, so whatever a statement comes to is known: an answer is that of the model, and an
    error means that the model is as it was.
    """

    def __init__(self, client: Client, number: int) -> None:
        self._client = client
        self._random = client.random
        self._number = number
        self._made = 0
        self._start = 100
        self.tables: list[TableModel] = []

    def step(self) -> None:
        """Do one random thing. Raises Refused, maybe within a block that has failed, and Finding."""
        chance = self._random.random()
        if not self.tables or (chance < 0.03 and len(self.tables) < _MOST_TABLES):
            self._create()
            return
        at = self._random.randrange(len(self.tables))
        if chance < 0.05:
            self._drop(at)
        elif chance < 0.3:
            self._block(at)
        else:
            self._single(at)

    def _single(self, at: int) -> None:
        working = self.tables[at].copy()
        try:
            if self._random.random() < 0.05:
                with self._client.timeout(self._random.choice((1, 5, 20))):
                    self._act(working, CANCELLED)
            else:
                self._act(working, disturb=self._random.random() < 0.15)
        except Refused:
            return
        self.tables[at] = working

    def _block(self, at: int) -> None:
        """Several statements as one transaction, which commits, rolls back, or loses its client."""
        working = self.tables[at].copy()
        self._client.run("BEGIN")
        try:
            for _ in range(self._random.randrange(1, 5)):
                # An index of rows that are not committed yet is refused.
                self._act(working, "55006", disturb=self._random.random() < 0.05)
        except Refused:
            self._client.run("ROLLBACK")
            return
        match self._random.randrange(6):
            case 0 | 1:
                self._client.run("ROLLBACK")
            case 2:
                self._client.hang_up(f"SELECT * FROM {working.name}")
            case _:
                try:
                    self._client.run("COMMIT", disturb=self._random.random() < 0.1)
                except Refused:
                    self._client.run("ROLLBACK")
                    return
                self.tables[at] = working

    def _create(self) -> None:
        self._made += 1
        unique = self._random.random() < 0.5
        table = TableModel(f"own{self._number}_{self._made}", unique)
        key = ", PRIMARY KEY (k)" if unique else ""
        statement = f"CREATE TABLE {table.name} ({COLUMNS}{key})"
        if self._random.random() < 0.5:
            self._client.run(statement)
            self.tables.append(table)
            return
        self._client.run("BEGIN")
        self._client.run(statement)
        try:
            self._act(table)
        except Refused:
            self._client.run("ROLLBACK")
            return
        if self._random.random() < 0.5:
            self._client.run("ROLLBACK")
            return
        self._client.run("COMMIT")
        self.tables.append(table)

    def _drop(self, at: int) -> None:
        name = self.tables[at].name
        if self._random.random() < 0.5:
            self._client.run("BEGIN")
            self._client.run(f"DROP TABLE {name}")
            self._client.run("ROLLBACK")
        else:
            self._client.run(f"DROP TABLE {name}")
            del self.tables[at]

    def _act(self, table: TableModel, *allowed: str, disturb: bool = False) -> None:
        """Run one statement on a table and have its model follow. Raises Refused, then nothing follows."""
        actions: list[Callable[[TableModel, tuple[str, ...], bool], None]] = [
            *[self._read] * 6,
            *[self._insert] * 3,
            self._insert_many,
            self._copy,
            *[self._update] * 2,
            *[self._delete] * 2,
            self._create_index,
            self._drop_index,
        ]
        self._random.choice(actions)(table, allowed, disturb)

    def _read(self, table: TableModel, allowed: tuple[str, ...], disturb: bool) -> None:
        self._client.ask(question(self._random, table), *allowed, disturb=disturb)

    def _insert(self, table: TableModel, allowed: tuple[str, ...], disturb: bool) -> None:
        rows = some_rows(self._random, table)
        values = ", ".join(f"({k}, {_literal(v)}, {_literal(t)})" for k, v, t in rows)
        self._write(table, f"INSERT INTO {table.name} VALUES {values}", rows, allowed, disturb)

    def _insert_many(self, table: TableModel, allowed: tuple[str, ...], disturb: bool) -> None:
        if len(table.rows) > _MOST_ROWS:
            return
        count = self._random.choice((500, 5_000))
        start = self._start
        if not table.unique or self._random.random() < 0.9:
            self._start += count
        rows = many_rows(start, count)
        sql = f"INSERT INTO {table.name} {many_rows_sql(start, count)}"
        self._write(table, sql, rows, allowed, disturb)

    def _write(
        self, table: TableModel, sql: str, rows: list[Row], allowed: tuple[str, ...], disturb: bool
    ) -> None:
        # A block finds a violation of a key when it commits, so there it would be ambiguous: leave it out.
        collides = table.collides(rows)
        if collides and self._client.in_block:
            return
        self._client.run(sql, *allowed, disturb=disturb, fails="23505" if collides else None)
        if collides:
            raise Finding(f"{sql[:200]}: a key that was there already was not refused")
        table.rows += rows

    def _copy(self, table: TableModel, allowed: tuple[str, ...], _: bool) -> None:
        if len(table.rows) > _MOST_ROWS:
            return
        count = self._random.choice((3, 5_000))
        rows = many_rows(self._start, count)
        self._start += count
        if table.collides(rows):
            return
        self._client.copy(table.name, [f"{k}\t{v}\t{t}\n" for k, v, t in rows], *allowed)
        table.rows += rows

    def _update(self, table: TableModel, allowed: tuple[str, ...], disturb: bool) -> None:
        low = self._random.choice([row[0] for row in table.rows] or [0])
        high = low + self._random.choice((0, 0, 40, 100_000))
        v = self._random.randrange(10)
        sql = f"UPDATE {table.name} SET v = v + {v}, t = 'x1' WHERE k BETWEEN {low} AND {high}"
        self._client.run(sql, *allowed, disturb=disturb)
        table.rows[:] = [
            (k, None if old is None else old + v, "x1") if low <= k <= high else (k, old, t)
            for k, old, t in table.rows
        ]

    def _delete(self, table: TableModel, allowed: tuple[str, ...], disturb: bool) -> None:
        low = self._random.choice([row[0] for row in table.rows] or [0])
        high = low + self._random.choice((0, 40, 3_000))
        self._client.run(
            f"DELETE FROM {table.name} WHERE k BETWEEN {low} AND {high}", *allowed, disturb=disturb
        )
        table.rows[:] = [row for row in table.rows if not low <= row[0] <= high]

    def _create_index(self, table: TableModel, allowed: tuple[str, ...], disturb: bool) -> None:
        if len(table.indexes) >= 3:
            return
        self._made += 1
        name = f"i{self._number}_{self._made}"
        keys = self._random.choice(("k", "v", "k, v", "v DESC, k", "t", "k DESC", "t, k"))
        self._client.run(f"CREATE INDEX {name} ON {table.name} ({keys})", *allowed, disturb=disturb)
        table.indexes.append(name)

    def _drop_index(self, table: TableModel, allowed: tuple[str, ...], disturb: bool) -> None:
        if table.indexes:
            name = self._random.choice(table.indexes)
            self._client.run(f"DROP INDEX {name}", *allowed, disturb=disturb)
            table.indexes.remove(name)


def _literal(value: int | str | None) -> str:
    if value is None:
        return "NULL"
    return str(value) if isinstance(value, int) else f"'{value}'"
