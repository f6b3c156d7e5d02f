"""Patterns: LIKE and ILIKE (`~~`, `~~*` and their negations) and regular expressions (`~`, `~*`).

A LIKE pattern becomes an equality, a prefix, suffix or substring search where it is no more than that, and a
regular expression else. Regular expressions are RE2's: they take time linear in the text, so that a pattern
from a client cannot stop a walk; back references and look-around, which that rules out, are errors.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from layby.errors import SqlError
from layby.expr.function import Kernel
from layby.expr.functions.kernels import (
    NULL,
    Flaw,
    arrow_of,
    by_row,
    define,
    define_predicate,
    fixed,
    numpy_of,
    row_errors,
    validity,
)
from layby.expr.vector import Vector, constant
from layby.types.column import Array, Mask
from layby.types.scalar import BOOLEAN, TEXT

_TRAILING_ESCAPE: Final = SqlError("22025", "LIKE pattern must not end with escape character")

Matcher = Callable[[Any], tuple[Any, Sequence[tuple[Any, SqlError]]]]
"""Matches an Arrow array of texts: an Arrow array of booleans, and the texts that are errors."""


class _Like:
    """A LIKE pattern taken apart.

    `pieces` are literal texts with `None` for `_` and `...` for `%`; `dangling` says that the pattern ends in
    a lone backslash, which is an error for the texts that get that far.
    """

    __slots__ = ("dangling", "pieces")

    def __init__(self, pattern: str) -> None:
        self.pieces: list[Any] = []
        self.dangling = False
        literal = ""
        characters = iter(pattern)
        for character in characters:
            if character in "%_":
                if literal:
                    self.pieces.append(literal)
                    literal = ""
                if character == "_":
                    self.pieces.append(None)
                elif not self.pieces or self.pieces[-1] is not ...:
                    self.pieces.append(...)
                continue
            if character == "\\":
                escaped = next(characters, None)
                if escaped is None:
                    self.dangling = True
                    break
                character = escaped
            literal += character
        if literal:
            self.pieces.append(literal)

    def regex(self) -> str:
        """Return the pattern as a regular expression from the start of the text, open at its end."""
        parts = ["." if p is None else ".*" if p is ... else re.escape(p) for p in self.pieces]
        return "^" + "".join(parts)


def _like_matcher(pattern: str, *, ignore_case: bool) -> Matcher:
    like = _Like(pattern)
    pieces = like.pieces
    flags = "(?si)" if ignore_case else "(?s)"
    if like.dangling:
        # the text fails where the pattern before the backslash has matched and more text follows
        reached = flags + like.regex() + "."

        def dangling(texts: Any) -> tuple[Any, Sequence[tuple[Any, SqlError]]]:
            failed = pc.match_substring_regex(texts, reached)
            return pc.and_(failed, False), [(failed, _TRAILING_ESCAPE)]

        return dangling
    match pieces:
        case []:
            return lambda texts: (pc.equal(texts, ""), ())
        case [str(text)] if not ignore_case:
            return lambda texts: (pc.equal(texts, text), ())
        case [str(text), x] if x is ...:
            return lambda texts: (pc.starts_with(texts, text, ignore_case=ignore_case), ())
        case [x, str(text)] if x is ...:
            return lambda texts: (pc.ends_with(texts, text, ignore_case=ignore_case), ())
        case [x, str(text), y] if x is ... and y is ...:
            return lambda texts: (pc.match_substring(texts, text, ignore_case=ignore_case), ())
        case _:
            whole = flags + like.regex() + "$"
            return lambda texts: (pc.match_substring_regex(texts, whole), ())


_REGEX_FAULTS: Final = (
    ("missing ]", "brackets [] not balanced"),
    ("missing )", "parentheses () not balanced"),
    ("unexpected )", "parentheses () not balanced"),
    ("missing argument to repetition operator", "quantifier operand invalid"),
    ("no argument for repetition operator", "quantifier operand invalid"),
    ("bad repetition operator", "quantifier operand invalid"),
    ("invalid repetition size", "invalid repetition count(s)"),
    ("trailing \\", "invalid escape \\ sequence"),
    ("invalid escape sequence", "invalid escape \\ sequence"),
    ("invalid character class range", "invalid character range"),
)
"""What RE2 says of a pattern, and what PostgreSQL says of the same."""


def _regex_matcher(pattern: str, *, ignore_case: bool) -> Matcher:
    # PostgreSQL's word boundaries \y \m \M are RE2's \b; its dot matches a line feed, too
    translated = re.sub(r"\\(.)", lambda m: _ESCAPES.get(m[1], m[0]), pattern, flags=re.DOTALL)
    whole = ("(?si)" if ignore_case else "(?s)") + translated
    try:
        pc.match_substring_regex(pa.array([""], pa.large_string()), whole)
    except pa.ArrowInvalid as invalid:
        said = str(invalid)
        fault = next((ours for theirs, ours in _REGEX_FAULTS if theirs in said), said.rpartition(": ")[2])
        error = SqlError("2201B", f"invalid regular expression: {fault}")
        return lambda texts: (pc.equal(texts, ""), [(pc.is_valid(texts), error)])
    return lambda texts: (pc.match_substring_regex(texts, whole), ())


_ESCAPES: Final = {"y": "\\b", "m": "\\b", "M": "\\b", "Y": "\\B"}

_MATCHERS: Final = {"like": _like_matcher, "regex": _regex_matcher}


@lru_cache(maxsize=256)
def _matcher(kind: str, pattern: str, ignore_case: bool) -> Matcher:
    return _MATCHERS[kind](pattern, ignore_case=ignore_case)


def _matching(kind: str, *, ignore_case: bool, negated: bool) -> Kernel:
    def kernel(args: Sequence[Vector], length: int) -> Vector:
        valid = validity(args)
        if valid is NULL:
            return constant(BOOLEAN, None)
        texts = arrow_of(args[0])
        if isinstance(texts, pa.Scalar):
            texts = pa.array([texts.as_py()] * length, pa.large_string())
        if args[1].constant:
            matched, flaws = _matcher(kind, str(args[1].column.value(0)), ignore_case)(texts)
            found = numpy_of(matched, length, np.bool_)
            failed: list[Flaw] = [(numpy_of(mask, length, np.bool_), error) for mask, error in flaws]
        else:
            found, failed = _match_each(kind, ignore_case, texts, args[1].column.to_list())
        return Vector(fixed(BOOLEAN, ~found if negated else found, valid), row_errors(failed, valid, length))

    return kernel


def _match_each(kind: str, ignore_case: bool, texts: Any, patterns: list[Any]) -> tuple[Mask, list[Flaw]]:
    """Match texts each with its own pattern, all the texts of one pattern together."""
    found = np.zeros(len(patterns), np.bool_)
    flaws: list[Flaw] = []
    rows_of: dict[str, list[int]] = {}
    for row, pattern in enumerate(patterns):
        if pattern is not None:
            rows_of.setdefault(pattern, []).append(row)
    for pattern, members in rows_of.items():
        rows: Array = np.array(members, np.int64)
        matched, failed = _matcher(kind, pattern, ignore_case)(texts.take(pa.array(rows)))
        found[rows] = numpy_of(matched, len(rows), np.bool_)
        for mask, error in failed:
            here = np.zeros(len(patterns), np.bool_)
            here[rows] = numpy_of(mask, len(rows), np.bool_)
            flaws.append((here, error))
    return found, flaws


def _like_escape(pattern: str, escape: str) -> str:
    """Return a pattern whose escape character is `escape` (none where that is empty) with the backslash's."""
    if len(escape) > 1:
        raise SqlError("22025", "invalid escape string", hint="Escape string must be empty or one character.")
    if escape == "\\":
        return pattern
    made: list[str] = []
    characters = iter(pattern)
    for character in characters:
        if character == escape:
            made.append("\\" + next(characters, ""))
        else:
            made.append("\\\\" if character == "\\" else character)
    return "".join(made)


def register_all() -> None:
    """Register the pattern operators, and `like_escape` for LIKE ... ESCAPE."""
    for name, kind, ignore_case in (
        ("~~", "like", False),
        ("~~*", "like", True),
        ("~", "regex", False),
        ("~*", "regex", True),
    ):
        define_predicate(name, (TEXT, TEXT), _matching(kind, ignore_case=ignore_case, negated=False))
        define_predicate("!" + name, (TEXT, TEXT), _matching(kind, ignore_case=ignore_case, negated=True))
    define("like_escape", (TEXT, TEXT), TEXT, by_row(TEXT, _like_escape))
