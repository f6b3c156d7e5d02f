"""String functions: what PostgreSQL answers, literally."""

from __future__ import annotations

import pytest

from layby.expr.scalar import ColumnRef
from layby.types.column import column_from_values
from layby.types.scalar import BOOLEAN, DATE, DOUBLE_PRECISION, INTEGER, REAL, TEXT, UNKNOWN, PhysicalValue
from tests.expr.helpers import Outcome, Raised, applied, call, evaluated, function, literal, shown, typed

TOO_LONG = Raised("54000", "requested length too large")
NULL = literal(None, TEXT)


@pytest.mark.parametrize(
    ("name", "args", "expected"),
    [
        ("length", ("äöü€",), 4),
        ("length", ("",), 0),
        ("char_length", ("日本語",), 3),
        ("octet_length", ("äöü€",), 9),
        ("lower", ("ÄBC",), "äbc"),
        ("upper", ("äbc",), "ÄBC"),
        ("substring", ("abcdef", 3), "cdef"),
        ("substring", ("abcdef", -1), "abcdef"),
        ("substring", ("abcdef", 2, 3), "bcd"),
        ("substring", ("abcdef", -1, 4), "ab"),
        ("substring", ("abcdef", 0, 2), "a"),
        ("substring", ("abcdef", 10, 2), ""),
        ("substring", ("abcdef", 2, 2147483647), "bcdef"),
        ("substring", ("äöü€", 2, 2), "öü"),
        ("substr", ("abcdef", 2, -1), Raised("22011", "negative substring length not allowed")),
        ("left", ("abcde", 2), "ab"),
        ("left", ("abcde", -2), "abc"),
        ("left", ("abcde", 0), ""),
        ("left", ("abcde", -9), ""),
        ("right", ("abcde", 2), "de"),
        ("right", ("abcde", -2), "cde"),
        ("right", ("abcde", 0), ""),
        ("right", ("abcde", 9), "abcde"),
        ("btrim", (" a b ",), "a b"),
        ("btrim", ("\ta ",), "\ta"),
        ("btrim", ("xyxtrimyyx", "xyz"), "trim"),
        ("btrim", ("abc", ""), "abc"),
        ("ltrim", ("zzzytest", "xyz"), "test"),
        ("rtrim", ("testxxzx", "xyz"), "test"),
        ("replace", ("abcabc", "b", "XX"), "aXXcaXXc"),
        ("replace", ("abc", "", "X"), "abc"),
        ("position", ("high", "ig"), 2),
        ("strpos", ("high", "x"), 0),
        ("strpos", ("high", ""), 1),
        ("strpos", ("äöü", "ü"), 3),
        ("starts_with", ("alphabet", "alph"), True),
        ("starts_with", ("alphabet", "beta"), False),
        ("^@", ("alphabet", "alph"), True),
        ("repeat", ("Pg", 3), "PgPgPg"),
        ("repeat", ("Pg", -1), ""),
        ("repeat", ("Pg", 2147483647), TOO_LONG),
        ("reverse", ("abc€",), "€cba"),
        ("lpad", ("hi", 5, "xy"), "xyxhi"),
        ("lpad", ("hello", 2, "xy"), "he"),
        ("lpad", ("hi", 4), "  hi"),
        ("lpad", ("hi", 5, ""), "hi"),
        ("lpad", ("hi", -1, "x"), ""),
        ("lpad", ("hi", 2147483647, "x"), TOO_LONG),
        ("rpad", ("hi", 5, "xy"), "hixyx"),
        ("rpad", ("hello", 2), "he"),
        ("split_part", ("abc~@~def~@~ghi", "~@~", 2), "def"),
        ("split_part", ("abc,def,ghi,jkl", ",", -2), "ghi"),
        ("split_part", ("abc,def", ",", 3), ""),
        ("split_part", ("abc", "", 1), "abc"),
        ("split_part", ("abc", "", -1), "abc"),
        ("split_part", ("abc", ",", 0), Raised("22023", "field position must not be zero")),
        ("initcap", ("hi THOMAS o'neil x1y äb",), "Hi Thomas O'Neil X1y Äb"),
        ("ascii", ("x",), 120),
        ("ascii", ("",), 0),
        ("ascii", ("€",), 8364),
        ("chr", (8364,), "€"),
        ("chr", (0,), Raised("54000", "null character not permitted")),
        ("chr", (1114112,), Raised("54000", "requested character too large for encoding: 1114112")),
        ("translate", ("12345", "143", "ax"), "a2x5"),
        ("translate", ("aab", "aa", "xy"), "xxb"),
        ("md5", ("abc",), "900150983cd24fb0d6963f7d28e17f72"),
    ],
)
def test_a_string_function_gives_what_postgresql_gives(
    name: str, args: tuple[PhysicalValue, ...], expected: Outcome
) -> None:
    found = applied(name, *args)
    assert found == expected
    assert type(found) is type(expected)


def test_string_functions_take_columns_with_nulls_and_constants_together() -> None:
    words = column_from_values(TEXT, ["abc", None, "", "äöü"])
    counts = column_from_values(INTEGER, [2, 2, None, 1])
    word, count = ColumnRef(0, TEXT), ColumnRef(1, INTEGER)
    columns = [words, counts]
    assert evaluated(call("left", word, count), columns) == ["ab", None, None, "ä"]
    assert evaluated(call("left", word, literal(1)), columns) == ["a", None, "", "ä"]
    assert evaluated(call("left", literal("xyz"), count), columns) == ["xy", "xy", None, "x"]
    assert evaluated(call("upper", word), columns) == ["ABC", None, "", "ÄÖÜ"]
    assert evaluated(call("length", word), columns) == [3, None, 0, 3]
    assert evaluated(call("||", word, literal("!")), columns) == ["abc!", None, "!", "äöü!"]
    assert evaluated(call("||", literal("!"), count), columns) == ["!2", "!2", None, "!1"]


def test_string_functions_work_on_a_slice_of_a_column() -> None:
    part = column_from_values(TEXT, ["abc", "de", None, "fgh", "i"]).slice(1, 4)
    word = ColumnRef(0, TEXT)
    assert evaluated(call("upper", word), [part]) == ["DE", None, "FGH"]
    assert evaluated(call("length", word), [part]) == [2, None, 3]
    assert evaluated(call("reverse", word), [part]) == ["ed", None, "hgf"]


def test_concat_leaves_nulls_out_and_shows_values_as_a_client_gets_them() -> None:
    assert applied("concat", "a", NULL, 1, True, typed(DATE, "2020-02-29")) == "a1t2020-02-29"
    assert applied("concat", NULL) == ""


def test_concat_ws_separates_what_is_not_null() -> None:
    assert applied("concat_ws", ",", "a", NULL, 2, "") == "a,2,"
    assert applied("concat_ws", NULL, "a", "b") is None


def test_concat_takes_columns_and_constants() -> None:
    columns = [column_from_values(TEXT, ["a", None, "c"]), column_from_values(INTEGER, [1, 2, None])]
    expr = call("concat", ColumnRef(0, TEXT), literal("-"), ColumnRef(1, INTEGER))
    assert evaluated(expr, columns) == ["a-1", "-2", "c-"]


def test_greatest_and_least_ignore_nulls() -> None:
    columns = [
        column_from_values(INTEGER, [1, None, None, 5]),
        column_from_values(INTEGER, [3, 2, None, None]),
    ]
    a, b = ColumnRef(0, INTEGER), ColumnRef(1, INTEGER)
    assert evaluated(call("greatest", a, b), columns) == [3, 2, None, 5]
    assert evaluated(call("least", a, b), columns) == [1, 2, None, 5]
    assert evaluated(call("greatest", a, b, literal(4)), columns) == [4, 4, 4, 5]
    assert evaluated(call("least", a, literal(None, INTEGER)), columns) == [1, None, None, 5]


def test_greatest_holds_nan_to_be_the_greatest() -> None:
    nan = float("nan")
    assert repr(applied("greatest", 1.0, nan)) == "nan"
    assert applied("least", nan, 1.0) == 1.0
    assert applied("least", literal(2.0, REAL), literal(1.5, REAL)) == 1.5


def test_greatest_of_texts_goes_by_bytes() -> None:
    assert applied("greatest", "Z", "a", "￿", "\U0001f600", NULL) == "\U0001f600"
    assert applied("least", "b", "B", NULL) == "B"
    assert shown("greatest", typed(DATE, "2020-01-01"), typed(DATE, "2021-01-01")) == "2021-01-01"
    assert applied("least", True, False) is False


def test_variadic_functions_refuse_argument_types_that_they_cannot_take() -> None:
    for name, types in (
        ("greatest", (INTEGER, DOUBLE_PRECISION)),
        ("greatest", (UNKNOWN, UNKNOWN)),
        ("concat", (UNKNOWN,)),
        ("concat_ws", (INTEGER, TEXT)),
        ("concat_ws", (TEXT,)),
    ):
        with pytest.raises(StopIteration):
            function(name, *types)
    assert function("concat", BOOLEAN).result is TEXT
