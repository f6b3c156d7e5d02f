"""SQL logic test files as records: the format of sqllogictest, without IO.

A file is records with empty lines between them. `statement ok`, `statement error TEXT`, `query TYPES SORT
LABEL` with its values after `----`, `query error TEXT`, `hash-threshold N`, `skipif NAME`, `onlyif NAME`,
`halt`. This engine's name is `postgresql`.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

ENGINE = "postgresql"
_HASHED = re.compile(r"(\d+) values hashing to ([0-9a-f]{32})")
_SORTS = ("nosort", "rowsort", "valuesort")


class RecordError(Exception):
    """A file that does not keep to the format; names the line."""


@dataclass(frozen=True, slots=True)
class Record:
    """One statement or query at a line of its file.

    `error` is None where success is expected, else a text that the message has to contain. `types` is empty
    for a statement. `expected` are the lines after `----`, None where the record has none.
    """

    line: int
    sql: str
    error: str | None = None
    types: str = ""
    sort: str = "nosort"
    label: str = ""
    expected: tuple[str, ...] | None = None


def parse(text: str) -> Iterator[Record]:
    """The records of a file that apply to this engine, up to its end or to `halt`. Raises RecordError."""
    lines = text.splitlines()
    at = 0
    applies = True
    while at < len(lines):
        words = lines[at].split("#")[0].split() if not lines[at].startswith("statement error") else []
        words = words or lines[at].split()
        if not words or words[0].startswith("#"):
            at += 1
            continue
        number = at + 1
        if words[0] in ("skipif", "onlyif"):
            applies = applies and (words[1] == ENGINE) == (words[0] == "onlyif")
            at += 1
            continue
        end = at + 1
        while end < len(lines) and lines[end].strip():
            end += 1
        body = lines[at + 1 : end]
        at = end
        if words[0] == "halt":
            if applies:
                return
        elif words[0] in ("statement", "query"):
            record = _record(number, words, body)
            if applies:
                yield record
        elif words[0] != "hash-threshold":
            raise RecordError(f"line {number}: unknown record {words[0]}")
        applies = True


def _record(line: int, words: Sequence[str], body: Sequence[str]) -> Record:
    kind, what = words[0], words[1] if len(words) > 1 else ""
    sql, expected = "\n".join(body), None
    if "----" in body:
        cut = body.index("----")
        sql, expected = "\n".join(body[:cut]), tuple(body[cut + 1 :])
    if not sql.strip():
        raise RecordError(f"line {line}: {kind} without SQL")
    if what == "error":
        return Record(line, sql, error=" ".join(words[2:]))
    if kind == "statement":
        if what != "ok":
            raise RecordError(f"line {line}: statement {what} is neither ok nor error")
        return Record(line, sql)
    sort = words[2] if len(words) > 2 else "nosort"
    if sort not in _SORTS or not what or set(what) - set("ITR"):
        raise RecordError(f"line {line}: query {what} {sort} is not understood")
    return Record(
        line, sql, types=what, sort=sort, label=words[3] if len(words) > 3 else "", expected=expected or ()
    )


def format_value(value: str | None, kind: str) -> str:
    """A value in PostgreSQL's text form as a test file has it: `I` integer, `R` three decimals, `T` text."""
    if value is None:
        return "NULL"
    if kind == "T":
        if value == "":
            return "(empty)"
        return "".join(chr(byte) if 32 <= byte <= 126 else "@" for byte in value.encode())
    try:
        return f"{float(value):.3f}" if kind == "R" else _integer(value)
    except (ValueError, OverflowError):
        return value


def _integer(value: str) -> str:
    if value in ("t", "f"):
        return "1" if value == "t" else "0"
    return str(int(value)) if value.lstrip("-").isdigit() else str(int(float(value)))


def arrange(rows: Sequence[Sequence[str | None]], types: str, sort: str) -> list[str]:
    """The values of an answer, formatted and put into the order that the record compares in.

    Raises ValueError where a row has not one value a type.
    """
    formatted = [[format_value(value, kind) for value, kind in zip(row, types, strict=True)] for row in rows]
    if sort == "rowsort":
        formatted.sort()
    values = [value for row in formatted for value in row]
    return sorted(values) if sort == "valuesort" else values


def digest(values: Sequence[str]) -> str:
    """The MD5 of the values, each followed by a newline."""
    return hashlib.md5("".join(f"{value}\n" for value in values).encode()).hexdigest()


def matches(values: Sequence[str], expected: Sequence[str]) -> bool:
    """Whether an answer is what the record expects, which gives all values or their number and digest."""
    hashed = _HASHED.fullmatch(expected[0]) if len(expected) == 1 else None
    if hashed is not None:
        return len(values) == int(hashed[1]) and digest(values) == hashed[2]
    return list(values) == list(expected)
