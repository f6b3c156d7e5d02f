"""LIKE against a naive matcher, its escapes, and regular expressions."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from layby.expr.scalar import ColumnRef
from layby.types.column import column_from_values
from layby.types.scalar import TEXT
from tests.expr.helpers import Outcome, Raised, applied, call, evaluated, literal

TRAILING = Raised("22025", "LIKE pattern must not end with escape character")
TEXTS, PATTERNS = ColumnRef(0, TEXT), ColumnRef(1, TEXT)


def like(text: str, pattern: str) -> bool:
    """Match by trying every split: `pattern` does not end in a lone backslash."""
    if not pattern:
        return not text
    head, rest = pattern[0], pattern[1:]
    if head == "%":
        return any(like(text[at:], rest) for at in range(len(text) + 1))
    if head == "\\":
        head, rest = rest[0], rest[1:]
    elif head == "_":
        return bool(text) and like(text[1:], rest)
    return text[:1] == head and like(text[1:], rest)


texts = st.text("aB%_\\.\né", max_size=5)
patterns = st.lists(
    st.sampled_from(["a", "B", "%", "_", "\\%", "\\_", "\\\\", "\\a", ".", "\n", "é", "*"]), max_size=5
).map("".join)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.one_of(st.none(), texts), patterns), min_size=1, max_size=6))
def test_like_matches_as_trying_every_split_does(rows: list[tuple[str | None, str]]) -> None:
    columns = [
        column_from_values(TEXT, [text for text, _ in rows]),
        column_from_values(TEXT, [p for _, p in rows]),
    ]
    expected = [None if text is None else like(text, pattern) for text, pattern in rows]
    assert evaluated(call("~~", TEXTS, PATTERNS), columns) == expected
    negated = [None if found is None else not found for found in expected]
    assert evaluated(call("!~~", TEXTS, PATTERNS), columns) == negated
    pattern = rows[0][1]
    expected = [None if text is None else like(text, pattern) for text, _ in rows]
    assert evaluated(call("~~", TEXTS, literal(pattern)), columns) == expected
    expected = [None if text is None else like(text.lower(), pattern.lower()) for text, _ in rows]
    assert evaluated(call("~~*", TEXTS, literal(pattern)), columns) == expected


@pytest.mark.parametrize(
    ("text", "pattern", "expected"),
    [
        ("a\\", "a\\", TRAILING),
        ("ab", "a\\", TRAILING),
        ("a", "a\\", False),
        ("xb", "a\\", False),
        ("", "\\", False),
        ("b", "%\\", TRAILING),
        ("", "%\\", False),
        ("bab", "%a\\", TRAILING),
        ("ba", "%a\\", False),
        ("a%", "a\\%", True),
        ("ab", "a\\%", False),
        ("\\", "\\\\", True),
    ],
)
def test_a_lone_escape_at_the_end_fails_the_texts_that_reach_it(
    text: str, pattern: str, expected: Outcome
) -> None:
    assert applied("~~", text, pattern) == expected
    negated = not expected if isinstance(expected, bool) else expected
    assert applied("!~~", text, pattern) == negated


@pytest.mark.parametrize(
    ("pattern", "escape", "expected"),
    [
        ("a#%b", "#", "a\\%b"),
        ("a##b", "#", "a\\#b"),
        ("a\\%", "#", "a\\\\%"),
        ("a\\%", "", "a\\\\%"),
        ("a\\%", "\\", "a\\%"),
        ("a", "##", Raised("22025", "invalid escape string")),
    ],
)
def test_another_escape_character_is_turned_into_the_backslash(
    pattern: str, escape: str, expected: Outcome
) -> None:
    assert applied("like_escape", pattern, escape) == expected


def test_ilike_ignores_case_beyond_ascii() -> None:
    assert applied("~~*", "STRAßE ÄÖ", "straße ä_") is True
    assert applied("~~*", "ÄB", "ä%") is True
    assert applied("!~~*", "ABC", "%B%") is False
    assert applied("~~*", "ABC", "abc") is True
    assert applied("~~", "ABC", "abc") is False


@pytest.mark.parametrize(
    ("name", "text", "pattern", "expected"),
    [
        ("~", "abc", "b", True),
        ("~", "abc", "^b", False),
        ("~", "ABC", "b", False),
        ("~*", "ABC", "b", True),
        ("!~", "abc", "b", False),
        ("!~*", "ABC", "b", False),
        ("~", "a\nc", "a.c", True),
        ("~", "a\nc", "^c", False),
        ("~", "a\n", "a$", False),
        ("~", "foo bar", "\\mbar\\M", True),
        ("~", "foobar", "\\mbar", False),
        ("~", "foo bar", "foo\\y", True),
        ("~", "a1", "\\d$", True),
        ("~", "a\\m", "\\\\m", True),
        ("~", "", "", True),
        ("~", "a", "(", Raised("2201B", "invalid regular expression: parentheses () not balanced")),
        ("~", "a", "[a", Raised("2201B", "invalid regular expression: brackets [] not balanced")),
        ("~", "a", "*", Raised("2201B", "invalid regular expression: quantifier operand invalid")),
        ("~", "a", "a\\", Raised("2201B", "invalid regular expression: invalid escape \\ sequence")),
        ("~", "a", "[b-a]", Raised("2201B", "invalid regular expression: invalid character range")),
    ],
)
def test_regular_expressions_match_as_postgresqls_do(
    name: str, text: str, pattern: str, expected: Outcome
) -> None:
    assert applied(name, text, pattern) == expected


def test_a_bad_regular_expression_fails_only_rows_with_a_text() -> None:
    columns = [column_from_values(TEXT, ["a", None]), column_from_values(TEXT, ["(", "("])]
    error = Raised("2201B", "invalid regular expression: parentheses () not balanced")
    assert evaluated(call("~", TEXTS, PATTERNS), columns) == [error, None]
    assert evaluated(call("~", TEXTS, literal("(")), columns) == [error, None]
