"""Text: length, case, parts, padding and the other string functions.

Characters are Unicode code points. What is called for in filters over many rows is computed by Arrow; the
rest is plain Python, about half a microsecond a row.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from layby.errors import SqlError
from layby.expr.functions.kernels import (
    arrow_to_fixed,
    arrow_to_text,
    by_row,
    define,
)
from layby.types.scalar import BOOLEAN, INTEGER, TEXT, PhysicalValue, SqlType

MAX_BYTES: Final = (1 << 30) - 1
"""What PostgreSQL allows a text value to take (1 GiB less the header is its limit, too)."""

_SEPARATOR: Final = pa.scalar("", pa.large_string())

TOO_LONG: Final = SqlError("54000", "requested length too large")


def _substring(text: str, start: int) -> str:
    return text[max(start - 1, 0) :]


def _substring_for(text: str, start: int, count: int) -> str:
    if count < 0:
        raise SqlError("22011", "negative substring length not allowed")
    return text[max(start - 1, 0) : max(start - 1 + count, 0)]


def _left(text: str, count: int) -> str:
    return text[:count]


def _right(text: str, count: int) -> str:
    if count == 0:
        return ""
    return text[-count:]


def _position(text: str, part: str) -> int:
    return text.find(part) + 1


def _replace(text: str, old: str, new: str) -> str:
    if not old:
        return text
    if len(new) > len(old) and text.count(old) * (len(new) - len(old)) + len(text) > MAX_BYTES:
        raise TOO_LONG
    return text.replace(old, new)


def _repeat(text: str, count: int) -> str:
    if count <= 0 or not text:
        return ""
    if len(text.encode()) * count > MAX_BYTES:
        raise TOO_LONG
    return text * count


def _padding(text: str, length: int, fill: str) -> str:
    missing = length - len(text)
    if missing <= 0 or not fill:
        return ""
    if length > MAX_BYTES // 4:
        raise TOO_LONG
    return (fill * (missing // len(fill) + 1))[:missing]


def _lpad(text: str, length: int, fill: str = " ") -> str:
    return (_padding(text, length, fill) + text[: max(length, 0)]) if length > 0 else ""


def _rpad(text: str, length: int, fill: str = " ") -> str:
    return (text[: max(length, 0)] + _padding(text, length, fill)) if length > 0 else ""


def _btrim(text: str, characters: str = " ") -> str:
    return text.strip(characters) if characters else text


def _ltrim(text: str, characters: str = " ") -> str:
    return text.lstrip(characters) if characters else text


def _rtrim(text: str, characters: str = " ") -> str:
    return text.rstrip(characters) if characters else text


def _split_part(text: str, delimiter: str, field: int) -> str:
    if field == 0:
        raise SqlError("22023", "field position must not be zero")
    if not text:
        return ""
    parts = text.split(delimiter) if delimiter else [text]
    at = field - 1 if field > 0 else len(parts) + field
    return parts[at] if 0 <= at < len(parts) else ""


def _initcap(text: str) -> str:
    made: list[str] = []
    inside = False
    for character in text:
        made.append(character.lower() if inside else character.upper())
        inside = character.isalnum()
    return "".join(made)


def _ascii(text: str) -> int:
    return ord(text[0]) if text else 0


def _chr(code: int) -> str:
    if code < 0:
        raise SqlError("22023", "character number must be positive")
    if code == 0:
        raise SqlError("54000", "null character not permitted")
    if code > 0x10FFFF:
        raise SqlError("54000", f"requested character too large for encoding: {code}")
    if 0xD800 <= code <= 0xDFFF:
        raise SqlError("54000", f"requested character not valid for encoding: {code}")
    return chr(code)


def _translate(text: str, source: str, target: str) -> str:
    table: dict[int, str | None] = {}
    for at, character in enumerate(source):
        table.setdefault(ord(character), target[at] if at < len(target) else None)
    return text.translate(table)


def _md5(text: str) -> str:
    return hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()


def join(left: Any, right: Any) -> Any:
    """Return two Arrow texts (arrays or scalars) end to end, row by row."""
    return pc.binary_join_element_wise(left, right, _SEPARATOR)


_BY_ROW: Sequence[tuple[str, tuple[SqlType, ...], SqlType, Callable[..., PhysicalValue]]] = (
    ("substring", (TEXT, INTEGER), TEXT, _substring),
    ("substring", (TEXT, INTEGER, INTEGER), TEXT, _substring_for),
    ("substr", (TEXT, INTEGER), TEXT, _substring),
    ("substr", (TEXT, INTEGER, INTEGER), TEXT, _substring_for),
    ("left", (TEXT, INTEGER), TEXT, _left),
    ("right", (TEXT, INTEGER), TEXT, _right),
    ("strpos", (TEXT, TEXT), INTEGER, _position),
    ("position", (TEXT, TEXT), INTEGER, _position),
    ("replace", (TEXT, TEXT, TEXT), TEXT, _replace),
    ("repeat", (TEXT, INTEGER), TEXT, _repeat),
    ("lpad", (TEXT, INTEGER), TEXT, _lpad),
    ("lpad", (TEXT, INTEGER, TEXT), TEXT, _lpad),
    ("rpad", (TEXT, INTEGER), TEXT, _rpad),
    ("rpad", (TEXT, INTEGER, TEXT), TEXT, _rpad),
    ("btrim", (TEXT,), TEXT, _btrim),
    ("btrim", (TEXT, TEXT), TEXT, _btrim),
    ("ltrim", (TEXT,), TEXT, _ltrim),
    ("ltrim", (TEXT, TEXT), TEXT, _ltrim),
    ("rtrim", (TEXT,), TEXT, _rtrim),
    ("rtrim", (TEXT, TEXT), TEXT, _rtrim),
    ("split_part", (TEXT, TEXT, INTEGER), TEXT, _split_part),
    ("initcap", (TEXT,), TEXT, _initcap),
    ("ascii", (TEXT,), INTEGER, _ascii),
    ("chr", (INTEGER,), TEXT, _chr),
    ("translate", (TEXT, TEXT, TEXT), TEXT, _translate),
    ("md5", (TEXT,), TEXT, _md5),
    ("reverse", (TEXT,), TEXT, lambda text: text[::-1]),
    ("starts_with", (TEXT, TEXT), BOOLEAN, str.startswith),
    ("^@", (TEXT, TEXT), BOOLEAN, str.startswith),
)


def register_all() -> None:
    """Register the string functions."""
    for name in ("length", "char_length", "character_length"):
        define(name, (TEXT,), INTEGER, arrow_to_fixed(INTEGER, pc.utf8_length))
    define("octet_length", (TEXT,), INTEGER, arrow_to_fixed(INTEGER, pc.binary_length))
    define("lower", (TEXT,), TEXT, arrow_to_text(pc.utf8_lower))
    define("upper", (TEXT,), TEXT, arrow_to_text(pc.utf8_upper))
    define("||", (TEXT, TEXT), TEXT, arrow_to_text(join))
    for name, args, result, function in _BY_ROW:
        define(name, args, result, by_row(result, function))
