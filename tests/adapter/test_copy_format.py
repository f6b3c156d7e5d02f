"""COPY's formats. The literals are what PostgreSQL 15 makes of the same bytes."""

from __future__ import annotations

import csv
import io
from dataclasses import replace

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from layby.adapter.copy_format import CopyParser, header_line, join_rows
from layby.errors import SqlError
from layby.sql.plan import CopyOptions
from layby.types.column import TextColumn, text_from_arrow
from layby.types.scalar import TEXT

Row = list[str | None]

PLAIN_TEXT = CopyOptions("text", "\t", "\\N", False, '"', '"')
PLAIN_CSV = CopyOptions("csv", ",", "", False, '"', '"')
ODD_CSV = CopyOptions("csv", ";", "NA", False, "'", "\\")


def text_column(values: list[str | None]) -> TextColumn:
    return text_from_arrow(pa.array(values, pa.large_string()), TEXT)


def taken(parser: CopyParser) -> list[Row]:
    columns = parser.take()
    if columns is None:
        return []
    lists = [column.to_list() for column in columns]
    return [list(row) for row in zip(*lists, strict=True)]


def split(
    data: bytes, options: CopyOptions = PLAIN_TEXT, names: str = "ab", cuts: tuple[int, ...] = ()
) -> list[Row]:
    """All rows of `data`, fed in pieces that end at `cuts`."""
    parser = CopyParser(options, "t", names)
    rows: list[Row] = []
    start = 0
    for cut in (*cuts, len(data)):
        parser.feed(data[start:cut])
        start = cut
        rows += taken(parser)
    parser.finish()
    rows += taken(parser)
    assert parser.take() is None
    assert parser.row_count == len(rows)
    return rows


def failure(data: bytes, options: CopyOptions = PLAIN_TEXT, names: str = "ab") -> tuple[str, str, str | None]:
    with pytest.raises(SqlError) as caught:
        split(data, options, names)
    return caught.value.sqlstate, caught.value.message, caught.value.context


@pytest.mark.parametrize(
    ("data", "rows"),
    [
        (b"1\tx\n2\ty\n", [["1", "x"], ["2", "y"]]),
        (b"1\tx\n2\ty", [["1", "x"], ["2", "y"]]),
        (b"1\tx\r\n2\ty\r\n", [["1", "x"], ["2", "y"]]),
        (b"1\tx\r2\ty\r", [["1", "x"], ["2", "y"]]),
        (b"1\tx\r2\ty", [["1", "x"], ["2", "y"]]),
        (b"\\N\t\n\t\\N\n", [[None, ""], ["", None]]),
        (b"a\\Nb\tN\n", [["aNb", "N"]]),
        (b"\\\\N\t\\\\\n", [["\\N", "\\"]]),
        (b'\\b\\f\\n\\r\\t\\v\t\\q\\"\n', [["\b\f\n\r\t\v", 'q"']]),
        (b"\\101\\60\\7\t\\x41\\x4a1\\xg\n", [["A0\x07", "AJ1xg"]]),
        (b"\\303\\251\t\\xc3\\xa9\n", [["é", "é"]]),
        (b"a\\\tb\tc\\\nd\n", [["a\tb", "c\nd"]]),
        (b"1\ta\\", [["1", "a"]]),
        ("é\t日本\n".encode(), [["é", "日本"]]),
        (b'"a"\tb"c\n', [['"a"', 'b"c']]),
        (b"", []),
    ],
)
def test_text_rows_are_split_and_unescaped(data: bytes, rows: list[Row]) -> None:
    assert split(data) == rows


@pytest.mark.parametrize(
    ("data", "rows"),
    [
        (b"1,x\n2,y\n", [["1", "x"], ["2", "y"]]),
        (b"1,x\r\n2,y", [["1", "x"], ["2", "y"]]),
        (b"1,x\r2,y\r", [["1", "x"], ["2", "y"]]),
        (b',""\n"",\n', [[None, ""], ["", None]]),
        (b'"a,b","say ""hi"""\n', [["a,b", 'say "hi"']]),
        (b'"two\nlines","three\n\n\nlines"\nx,y\n', [["two\nlines", "three\n\n\nlines"], ["x", "y"]]),
        (b'"two\r\nlines",x\r\ny,"\n"\r\n', [["two\r\nlines", "x"], ["y", "\n"]]),
        (b'a"b,c"d,e\n', [["ab,cd", "e"]]),
        (b'"a"b,c""\n', [["ab", "c"]]),
        (b'""x"",y"" \n', [["x", "y "]]),
        (b'"""","a""b"\n', [['"', 'a"b']]),
        (b" a , b \n", [[" a ", " b "]]),
        (b"a\\,\\N\n", [["a\\", "\\N"]]),
        (b"\\.x,1\n", [["\\.x", "1"]]),
        ("é,日本\n".encode(), [["é", "日本"]]),
    ],
)
def test_csv_rows_are_split_and_unquoted(data: bytes, rows: list[Row]) -> None:
    assert split(data, PLAIN_CSV) == rows


def test_csv_follows_its_options() -> None:
    data = b"'a;b';NA\n'NA';\n'it\\'s';'\\\\'\nx\\;'a\\b'\n'\\\\';\"\n"
    expected: list[Row] = [["a;b", None], ["NA", ""], ["it's", "\\"], ["x\\", "a\\b"], ["\\", '"']]
    assert split(data, ODD_CSV) == expected


def test_text_follows_its_options() -> None:
    options = CopyOptions("text", "|", "NULL", False, '"', '"')
    assert split(b"NULL|a\n\\NULL|x\\|y\n\\N|\n", options) == [[None, "a"], ["NULL", "x|y"], ["N", ""]]


@pytest.mark.parametrize("eol", [b"\n", b"\r\n", b"\r"])
def test_a_header_is_left_out_whatever_it_says(eol: bytes) -> None:
    data = b'"one\nname"' + eol + b"1,2" + eol
    assert split(data, replace(PLAIN_CSV, header=True)) == [["1", "2"]]
    assert split(b"only" + eol + b"\\x41\t2" + eol, replace(PLAIN_TEXT, header=True)) == [["A", "2"]]
    assert split(b"header", replace(PLAIN_TEXT, header=True)) == []


@pytest.mark.parametrize(
    ("data", "options", "rows"),
    [
        (b"1\t2\n\\.\nthis is ignored", PLAIN_TEXT, [["1", "2"]]),
        (b"1\t2\r\n\\.\r\n", PLAIN_TEXT, [["1", "2"]]),
        (b"\\.\n", PLAIN_TEXT, []),
        (b"1\t2\n3\t4\\.\n5\t6\n", PLAIN_TEXT, [["1", "2"], ["3", "4"]]),
        (b"1,2\n\\.\n3,4\n", PLAIN_CSV, [["1", "2"]]),
    ],
)
def test_a_marker_ends_the_data(data: bytes, options: CopyOptions, rows: list[Row]) -> None:
    assert split(data, options) == rows
    parser = CopyParser(options, "t", "ab")
    parser.feed(data)
    assert taken(parser) == rows
    assert parser.ended
    parser.feed(b"9\t9\n")
    assert parser.take() is None


@pytest.mark.parametrize(
    ("data", "options", "expected"),
    [
        (b"1\t2\n3\n", PLAIN_TEXT, ('missing data for column "b"', 'COPY t, line 2: "3"')),
        (b"1\t2\t3\n", PLAIN_TEXT, ("extra data after last expected column", 'COPY t, line 1: "1\t2\t3"')),
        (b"\n", PLAIN_TEXT, ('missing data for column "b"', 'COPY t, line 1: ""')),
        (b"1,2\n\n3,4\n", PLAIN_CSV, ('missing data for column "b"', 'COPY t, line 2: ""')),
        (b'1,"2"\r\n\r\n', PLAIN_CSV, ('missing data for column "b"', 'COPY t, line 2: ""')),
        (b"1,2\n1,2,3", PLAIN_CSV, ("extra data after last expected column", 'COPY t, line 2: "1,2,3"')),
        (b'1,2\n3,"4', PLAIN_CSV, ("unterminated CSV quoted field", 'COPY t, line 2: "3,"4"')),
        (b'1,2\n3,"4\n5,6\n', PLAIN_CSV, ("unterminated CSV quoted field", 'COPY t, line 4: "3,"4\n5,6\n"')),
        (b"1\t2\n3\t4\r\n", PLAIN_TEXT, ("literal carriage return found in data", "COPY t, line 2")),
        (b"1\t2\r\n3\t4\n", PLAIN_TEXT, ("literal newline found in data", "COPY t, line 2")),
        (b"1\t2\r\n3\t4\r5\t6\r\n", PLAIN_TEXT, ("literal carriage return found in data", "COPY t, line 2")),
        (b"1,2\n3,4\r\n", PLAIN_CSV, ("unquoted carriage return found in data", "COPY t, line 2")),
        (b"1,2\r\n3,4\n", PLAIN_CSV, ("unquoted newline found in data", "COPY t, line 2")),
        (b'1,"2"\n3,4\r5,6\n', PLAIN_CSV, ("unquoted carriage return found in data", "COPY t, line 2")),
        (
            b"h\ti\r1\t2\r\n3\t4\r\n",
            replace(PLAIN_TEXT, header=True),
            ("literal newline found in data", "COPY t, line 3"),
        ),
        (b'1,2\r\n"3",4\n', PLAIN_CSV, ("unquoted newline found in data", "COPY t, line 2")),
        (b"1\t2\n\\.x\n", PLAIN_TEXT, ("end-of-copy marker corrupt", "COPY t, line 2")),
        (b"1\t2\n\\.", PLAIN_TEXT, ("end-of-copy marker corrupt", "COPY t, line 2")),
        (
            b"1\t2\n\\.\r\n",
            PLAIN_TEXT,
            ("end-of-copy marker does not match previous newline style", "COPY t, line 2"),
        ),
    ],
)
def test_bad_data_is_refused_with_its_line(
    data: bytes, options: CopyOptions, expected: tuple[str, str]
) -> None:
    assert failure(data, options) == ("22P04", *expected)


def test_line_ends_out_of_style_come_with_a_hint() -> None:
    hints: list[str | None] = []
    for data, options in ((b"1\t2\n\t\r\n", PLAIN_TEXT), (b"1,2\r\n,\n", PLAIN_CSV)):
        with pytest.raises(SqlError) as caught:
            split(data, options)
        hints.append(caught.value.hint)
    assert hints == ['Use "\\r" to represent carriage return.', "Use quoted CSV field to represent newline."]


@pytest.mark.parametrize("options", [PLAIN_TEXT, PLAIN_CSV, replace(PLAIN_TEXT, header=True)])
@pytest.mark.parametrize(("bad", "shown"), [(b"\xff", "0xff"), (b"\xe9x", "0xe9 0x78"), (b"\0", "0x00")])
def test_what_is_not_utf8_is_refused(options: CopyOptions, bad: bytes, shown: str) -> None:
    delimiter = options.delimiter.encode()
    message = f'invalid byte sequence for encoding "UTF8": {shown}'
    assert failure(b"1" + delimiter + b"2\n3" + delimiter + bad + b"\n", options) == (
        "22021",
        message,
        "COPY t, line 2",
    )


@pytest.mark.parametrize(
    ("escape", "shown"), [(b"\\xff", "0xff"), (b"\\0", "0x00"), (b"\\351x", "0xe9 0x78")]
)
def test_escapes_that_make_no_text_are_refused(escape: bytes, shown: str) -> None:
    line = escape.decode()
    assert failure(b"1\t2\n3\t" + escape + b"\n") == (
        "22021",
        f'invalid byte sequence for encoding "UTF8": {shown}',
        f'COPY t, line 2: "3\t{line}"',
    )


def test_a_long_line_is_cut_in_the_context() -> None:
    assert failure(b"x" * 200 + b"\n")[2] == 'COPY t, line 1: "' + "x" * 100 + '..."'


def test_a_table_of_one_column_takes_empty_lines() -> None:
    assert split(b"\na\n\n", PLAIN_TEXT, "a") == [[""], ["a"], [""]]
    assert split(b'\na\n""\n', PLAIN_CSV, "a") == [[None], ["a"], [""]]


def test_a_table_without_columns_takes_empty_lines_alone() -> None:
    parser = CopyParser(PLAIN_TEXT, "t", ())
    parser.feed(b"\n\n\n")
    assert parser.take() == []
    assert parser.row_count == 3
    parser.feed(b"x\n")
    with pytest.raises(SqlError, match="extra data after last expected column"):
        parser.take()


MIXED = [
    (b"1\tx\n\\N\t\\\\\\x41\n\xc3\xa9\ta\\\tb\n4\ty\\\nz\n5\t\n", PLAIN_TEXT),
    (b"1\tx\r\n\\N\t\\\\\r\n\xc3\xa9\tb\r\n4\ty\r\n", PLAIN_TEXT),
    (b'h,i\n1,"a ""b"" c"\n2,"x\ny"\n,""\n\xe6\x97\xa5,"q,"\n5,a"b,"c\n', replace(PLAIN_CSV, header=True)),
    (b'1,"a"\r\n2,"x\r\ny"\r\n3,\r\n', PLAIN_CSV),
    (b"1;'a\\'b'\n'\\\\';NA\n3;'x\ny'\n", ODD_CSV),
]
MIXED_ROWS: list[list[Row]] = [
    [["1", "x"], [None, "\\A"], ["é", "a\tb"], ["4", "y\nz"], ["5", ""]],
    [["1", "x"], [None, "\\"], ["é", "b"], ["4", "y"]],
    [["1", 'a "b" c'], ["2", "x\ny"], [None, ""], ["日", "q,"], ["5", "ab,c"]],
    [["1", "a"], ["2", "x\r\ny"], ["3", None]],
    [["1", "a'b"], ["\\", None], ["3", "x\ny"]],
]


@pytest.mark.parametrize("number", range(4))
def test_pieces_may_be_cut_anywhere(number: int) -> None:
    data, options = MIXED[number]
    if number == 2:
        data, rows = data.replace(b'5,a"b,"c\n', b""), MIXED_ROWS[number][:-1]
    else:
        rows = MIXED_ROWS[number]
    for cut in range(len(data) + 1):
        assert split(data, options, cuts=(cut,)) == rows
    assert split(data, options, cuts=tuple(range(len(data)))) == rows


def test_rows_come_out_as_soon_as_they_are_whole() -> None:
    parser = CopyParser(PLAIN_TEXT, "t", "ab")
    parser.feed(b"1\t2\n3\t")
    assert taken(parser) == [["1", "2"]]
    assert taken(parser) == []
    parser.feed(b"4\n")
    assert taken(parser) == [["3", "4"]]


def test_a_carriage_return_ends_a_row_at_once_where_it_ended_the_first() -> None:
    parser = CopyParser(PLAIN_TEXT, "t", "ab")
    parser.feed(b"1\t2\r3\t4\r")
    assert taken(parser) == [["1", "2"], ["3", "4"]]


def test_a_marker_in_a_table_of_one_column_is_no_value() -> None:
    assert split(b"a\n\\.\nb\n", PLAIN_CSV, "a") == [["a"]]


def test_a_row_in_many_pieces_is_looked_at_few_times() -> None:
    class Counted(CopyParser):
        looks = 0

        def _take_plain(self, data: bytes, at: int) -> tuple[list[TextColumn] | None, int]:
            self.looks += 1
            return super()._take_plain(data, at)

    parser = Counted(PLAIN_CSV, "t", "ab")
    parser.feed(b'1,"')
    for _ in range(1000):
        parser.feed(b"x\n" * 10)
        assert parser.take() is None
    parser.feed(b'"\n')
    parser.finish()
    assert taken(parser) == [["1", "x\n" * 10_000]]
    assert parser.looks <= 20


def test_a_row_knows_its_line() -> None:
    parser = CopyParser(replace(PLAIN_CSV, header=True), "t", "ab")
    parser.feed(b"h,i\n1,2\n3,4\n")
    assert len(taken(parser)) == 2
    parser.feed(b'"5\n\n",6\n7,8\n')
    assert len(taken(parser)) == 2
    parser.feed(b'a"b\n"c,d\ne,f\n')
    assert len(taken(parser)) == 2
    parser.feed(b"9,10")
    parser.finish()
    assert len(taken(parser)) == 1
    assert [parser.line_of(row) for row in range(7)] == [2, 3, 6, 7, 9, 10, 11]


def test_an_escaped_newline_does_not_count_as_a_line() -> None:
    parser = CopyParser(PLAIN_TEXT, "t", "ab")
    parser.feed(b"1\ta\\\nb\n2\tc\n")
    assert taken(parser) == [["1", "a\nb"], ["2", "c"]]
    assert [parser.line_of(0), parser.line_of(1)] == [1, 2]


def test_the_error_of_a_value_is_located() -> None:
    parser = CopyParser(PLAIN_TEXT, "t", "ab")
    parser.feed(b"1\t2\nx\t\\N\n")
    parser.take()
    error = SqlError("22P02", 'invalid input syntax for type integer: "x"', hint="h")
    located = parser.locate(error, 1, 0, "x")
    assert (located.sqlstate, located.message, located.hint) == (error.sqlstate, error.message, "h")
    assert located.context == 'COPY t, line 2, column a: "x"'
    assert parser.locate(error, 1, 1, None).context == "COPY t, line 2, column b: null input"
    assert parser.locate(error, 0, 1, "y" * 101).context == f'COPY t, line 1, column b: "{"y" * 100}..."'


FIELDS = st.text(st.sampled_from("ab,\"\n é;'\\"), max_size=5)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.lists(FIELDS, min_size=2, max_size=2), max_size=6), st.integers(0, 60))
def test_what_the_standard_library_writes_as_csv_is_read_alike(rows: list[list[str]], cut: int) -> None:
    out = io.StringIO()
    csv.writer(out, quoting=csv.QUOTE_ALL, lineterminator="\n").writerows(rows)
    assert split(out.getvalue().encode(), PLAIN_CSV, cuts=(cut,)) == rows


@pytest.mark.parametrize(
    ("values", "line"),
    [
        (["a", "b"], b"a\tb\n"),
        ([None, ""], b"\\N\t\n"),
        (["\\N", "\\"], b"\\\\N\t\\\\\n"),
        (["\b\f\n\r\t\v", "\x01"], b"\\b\\f\\n\\r\\t\\v\t\x01\n"),
        (["é", '"'], b'\xc3\xa9\t"\n'),
    ],
)
def test_a_row_is_written_as_text(values: list[str | None], line: bytes) -> None:
    assert join_rows([text_column([v]) for v in values], PLAIN_TEXT)[0] == line


@pytest.mark.parametrize(
    ("values", "line"),
    [
        (["a", "b c"], b"a,b c\n"),
        ([None, ""], b',""\n'),
        (["a,b", 'say "hi"'], b'"a,b","say ""hi"""\n'),
        (["x\ny", "x\ry"], b'"x\ny","x\ry"\n'),
        (["\\.", "\\N"], b"\\.,\\N\n"),
        (["\\."], b'"\\."\n'),
        (["é", "\t"], b"\xc3\xa9,\t\n"),
    ],
)
def test_a_row_is_written_as_csv(values: list[str | None], line: bytes) -> None:
    assert join_rows([text_column([v]) for v in values], PLAIN_CSV)[0] == line


def test_writing_follows_the_options() -> None:
    columns = [text_column(["a;b", "it's", "NA", None]), text_column(["\\", "'\\", "x", ""])]
    assert join_rows(columns, ODD_CSV)[0] == b"'a;b';\\\n'it\\'s';'\\'\\\\'\n'NA';x\nNA;\n"
    piped = CopyOptions("text", "|", "NULL", False, '"', '"')
    columns = [text_column(["a|b", None]), text_column(["\t", "NULL"])]
    assert join_rows(columns, piped)[0] == b"a\\|b|\\t\nNULL|NULL\n"


def test_the_ends_of_rows_are_told() -> None:
    words = text_column(["skipped", "é", None, "abc"]).slice(1, 4)
    data, ends = join_rows([words, text_column(["", "x", "\t"])], PLAIN_TEXT)
    assert data == b"\xc3\xa9\t\n\\N\tx\nabc\t\\t\n"
    assert ends.tolist() == [4, 9, 16]
    data, ends = join_rows([text_column([]), text_column([])], PLAIN_CSV)
    assert (data, ends.tolist()) == (b"", [])


def test_a_header_names_the_columns() -> None:
    assert header_line(["a", "b,c", 'd"'], PLAIN_CSV) == b'a,"b,c","d"""\n'
    assert header_line(["a", "b\tc"], PLAIN_TEXT) == b"a\tb\\tc\n"


@settings(max_examples=150, deadline=None)
@given(
    st.lists(
        st.lists(
            st.none() | st.text(st.sampled_from("ab,\"\n\té;'\\N.A|\r"), max_size=5), min_size=2, max_size=2
        )
    ),
    st.sampled_from([PLAIN_TEXT, PLAIN_CSV, ODD_CSV, CopyOptions("text", "|", "NULL", False, '"', '"')]),
    st.lists(st.integers(0, 80), max_size=4),
)
def test_what_is_written_is_read_back(rows: list[Row], options: CopyOptions, cuts: list[int]) -> None:
    columns = [text_column([row[i] for row in rows]) for i in range(2)]
    data, ends = join_rows(columns, options)
    assert len(ends) == len(rows)
    assert split(data, options, cuts=tuple(sorted(cuts))) == rows
