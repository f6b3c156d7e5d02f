"""The format: what a file says, and how an answer is compared."""

from __future__ import annotations

import pytest

from tests.slt.records import Record, RecordError, arrange, format_value, matches, parse


def test_a_file_is_read_into_statements_and_queries() -> None:
    text = """\
# a comment
hash-threshold 8

statement ok
CREATE TABLE t (a int)

statement error does not exist
SELECT *
FROM u

query IT rowsort label-1
SELECT 1, 'x'
----
1
x
"""

    assert list(parse(text)) == [
        Record(4, "CREATE TABLE t (a int)"),
        Record(7, "SELECT *\nFROM u", error="does not exist"),
        Record(11, "SELECT 1, 'x'", types="IT", sort="rowsort", label="label-1", expected=("1", "x")),
    ]


def test_records_for_other_engines_are_left_out() -> None:
    text = """\
skipif postgresql
statement ok
SELECT 1

onlyif mysql # why
statement ok
SELECT 2

onlyif postgresql
statement ok
SELECT 3

skipif mysql
statement ok
SELECT 4
"""

    assert [record.sql for record in parse(text)] == ["SELECT 3", "SELECT 4"]


def test_halt_ends_the_file_unless_it_is_for_another_engine() -> None:
    text = "onlyif mysql\nhalt\n\nstatement ok\nSELECT 1\n\nhalt\n\nstatement ok\nSELECT 2\n"

    assert [record.sql for record in parse(text)] == ["SELECT 1"]


@pytest.mark.parametrize(
    "text", ["statement perhaps\nSELECT 1", "query X nosort\nSELECT 1", "query I upside\nSELECT 1", "loop 3"]
)
def test_what_is_no_record_is_refused(text: str) -> None:
    with pytest.raises(RecordError, match="line 1"):
        list(parse(text))


@pytest.mark.parametrize(
    ("value", "kind", "formatted"),
    [
        (None, "I", "NULL"),
        ("12", "I", "12"),
        ("-3.9", "I", "-3"),
        ("9223372036854775807", "I", "9223372036854775807"),
        ("t", "I", "1"),
        ("1.23456", "R", "1.235"),
        ("7", "R", "7.000"),
        ("", "T", "(empty)"),
        ("a\tb", "T", "a@b"),
        ("é", "T", "@@"),
    ],
)
def test_a_value_is_formatted_by_its_type_letter(value: str | None, kind: str, formatted: str) -> None:
    assert format_value(value, kind) == formatted


def test_rows_and_values_are_sorted_as_text() -> None:
    rows = [("10", "b"), ("9", "a")]

    assert arrange(rows, "IT", "nosort") == ["10", "b", "9", "a"]
    assert arrange(rows, "IT", "rowsort") == ["10", "b", "9", "a"]
    assert arrange(list(reversed(rows)), "IT", "rowsort") == ["10", "b", "9", "a"]
    assert arrange(rows, "IT", "valuesort") == ["10", "9", "a", "b"]


def test_expected_values_are_given_in_full_or_by_number_and_digest() -> None:
    assert matches(["1", "2"], ["1", "2"])
    assert not matches(["1", "2"], ["2", "1"])
    # echo -e "1\n2" | md5sum
    assert matches(["1", "2"], ["2 values hashing to 6ddb4095eb719e2a9f0a3f95677d24e0"])
    assert not matches(["1", "3"], ["2 values hashing to 6ddb4095eb719e2a9f0a3f95677d24e0"])
    assert not matches([], ["1"])
