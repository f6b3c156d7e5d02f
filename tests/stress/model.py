"""The model of a table: a list of rows, and what each statement of the stress test means on it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

Row = tuple[int, int | None, str | None]
"""(k, v, t)"""

Answer = list[tuple[Any, ...]]

COLUMNS = "k int NOT NULL, v bigint, t text"


@dataclass
class TableModel:
    """A table of one session, which alone writes it; so its contents are known exactly."""

    name: str
    unique: bool
    rows: list[Row] = field(default_factory=list)
    indexes: list[str] = field(default_factory=list)

    def copy(self) -> TableModel:
        """Return what a transaction works on."""
        return TableModel(self.name, self.unique, list(self.rows), list(self.indexes))

    def collides(self, rows: Sequence[Row]) -> bool:
        """Whether inserting `rows` would violate the primary key."""
        if not self.unique:
            return False
        keys = [row[0] for row in rows]
        return len(set(keys)) < len(keys) or not {row[0] for row in self.rows}.isdisjoint(keys)


@dataclass(frozen=True)
class Question:
    """A query, and what its answer has to be: a check of the rows, or the SQLSTATE that it must fail with."""

    sql: str
    check: Callable[[Answer], bool]
    fails: str | None = None
    expected: Answer | None = None

    def wrong(self, answer: Answer) -> str:
        """Say what is wrong about an answer."""
        if self.expected is None:
            return f"{self.sql}: {len(answer)} rows: {answer[:5]}"
        missing = list((Counter(self.expected) - Counter(answer)).elements())
        extra = list((Counter(answer) - Counter(self.expected)).elements())
        return (
            f"{self.sql}: expected {len(self.expected)} rows, got {len(answer)}; "
            f"missing {missing[:5]}, not expected {extra[:5]}"
        )


def _set_of(sql: str, expected: Answer) -> Question:
    counted = Counter(expected)
    return Question(sql, lambda answer: Counter(answer) == counted, expected=expected)


def _list_of(sql: str, expected: Answer) -> Question:
    return Question(sql, lambda answer: answer == expected, expected=expected)


def _ascending(row: Row) -> tuple[Any, ...]:
    """The order of `k, v, t`: nulls are larger than everything."""
    k, v, t = row
    return (k, v is None, v or 0, t is None, t or "")


def question(random: Random, table: TableModel) -> Question:
    """Return a random query of a table with its answer."""
    rows, name = table.rows, table.name
    known = [row[0] for row in rows] or [0]
    k = random.choice(known) if random.random() < 0.8 else random.randrange(-5, 20_000)
    match random.randrange(12):
        case 0:
            return _set_of(f"SELECT * FROM {name}", list(rows))
        case 1 | 2:
            return _set_of(f"SELECT v, t FROM {name} WHERE k = {k}", [row[1:] for row in rows if row[0] == k])
        case 3:
            low, high = sorted((k, random.choice(known)))
            return _set_of(
                f"SELECT k, v FROM {name} WHERE k BETWEEN {low} AND {high}",
                [row[:2] for row in rows if low <= row[0] <= high],
            )
        case 4:
            wanted = [k, *random.choices(known, k=3), k]
            return _set_of(
                f"SELECT * FROM {name} WHERE k IN ({', '.join(map(str, wanted))})",
                [row for row in rows if row[0] in wanted],
            )
        case 5:
            v = random.randrange(10)
            return _set_of(f"SELECT k FROM {name} WHERE v = {v}", [row[:1] for row in rows if row[1] == v])
        case 6:
            return _set_of(f"SELECT * FROM {name} WHERE v IS NULL", [row for row in rows if row[1] is None])
        case 7 | 8:
            limit, offset = random.randrange(1, 60), random.choice((0, 0, 3, 200))
            backwards = random.random() < 0.5
            down = " DESC" if backwards else ""
            ordered = sorted(rows, key=_ascending, reverse=backwards)
            return _list_of(
                f"SELECT * FROM {name} ORDER BY k{down}, v{down}, t{down} LIMIT {limit} OFFSET {offset}",
                list(ordered[offset : offset + limit]),
            )
        case 9:
            limit = random.randrange(0, 50)
            counted, size = Counter(rows), min(limit, len(rows))
            return Question(
                f"SELECT * FROM {name} LIMIT {limit}",
                lambda answer: len(answer) == size and not Counter(answer) - counted,
            )
        case 10:
            return _set_of(
                f"SELECT k + 1, t FROM {name} WHERE t LIKE 'x1%' AND k % 3 = 1",
                [(row[0] + 1, row[2]) for row in rows if (row[2] or "").startswith("x1") and row[0] % 3 == 1],
            )
        case _:
            found = [row for row in rows if row[0] < 50]
            sql = f"SELECT 1000 / k FROM {name} WHERE k < 50"
            if any(row[0] == 0 for row in found):
                return Question(sql, lambda _: False, fails="22012")
            return _set_of(sql, [(int(1000 / row[0]),) for row in found])


def some_rows(random: Random, table: TableModel) -> list[Row]:
    """Return a few random rows to insert; now and then with a key that is there."""
    rows: list[Row] = []
    for _ in range(random.choice((1, 1, 2, 10, 100))):
        fresh = random.random() < 0.98
        k = random.randrange(20_000, 2_000_000) if fresh else random.randrange(0, 50)
        v = None if random.random() < 0.2 else random.randrange(10)
        text = random.choice((None, "", "x", "xé∑𝄞", "x1", "w" * random.choice((5, 40, 3000))))
        rows.append((k, v, None if text is None else f"{text}{random.randrange(100)}"))
    return rows


def many_rows(start: int, count: int) -> list[Row]:
    """Return the rows of `many_rows_sql`."""
    return [(g, g % 10, f"x{g}") for g in range(start, start + count)]


def many_rows_sql(start: int, count: int) -> str:
    """Return a query for many rows, made by the server."""
    return f"SELECT g, g % 10, 'x' || g::text FROM generate_series({start}, {start + count - 1}) g"
