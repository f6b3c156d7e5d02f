"""The text and CSV formats of COPY: a stream of bytes into columns of texts, and columns into lines.

`CopyParser` does no IO: bytes go in, cut anywhere, and columns of whole rows come out. Plain data (text
format with no escaped line end or delimiter; CSV whose quotes stand only around fields) is split by Arrow's
CSV reader, a million rows of three columns in 0.3 s. Everything else, and everything wrong, takes the exact
path, a row at a time (some 5 µs each), which alone raises errors.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyarrow import csv

from layby.adapter.copy_rows import Field, Line, row_reader, unescape
from layby.errors import SqlError
from layby.sql.plan import CopyOptions
from layby.types.column import Mask, TextColumn, text_from_arrow
from layby.types.scalar import TEXT
from layby.types.text import decode_text

_LARGEST_BLOCK: Final = 1 << 30
"""Bytes that Arrow's reader takes at once; it counts them in 32 bits."""

_LONGEST_QUOTATION: Final = 100
"""Characters of the input that an error's context shows."""

_BACKSLASH: Final = ord("\\")
_NEWLINE: Final = ord("\n")
_RETURN: Final = ord("\r")


class _NotPlain(Exception):  # noqa: N818 - never leaves this module
    """Arrow's reader might not split the data as PostgreSQL does."""


@dataclass(frozen=True, slots=True)
class _Stretch:
    """Where rows from `first_row` on stand: row `first_row + i` ends on line `first_line + i`.

    Where rows span lines, `lines` has the line of each instead.
    """

    first_row: int
    first_line: int
    lines: NDArray[np.int64] | None = None


class CopyParser:
    """Splits COPY data into columns of texts, NULLs resolved.

    `table` and `columns` are names, for errors. Rows are numbered from 0 over all that was taken.
    """

    def __init__(self, options: CopyOptions, table: str, columns: Sequence[str]) -> None:
        self._options = options
        self._table = table
        self._columns = tuple(columns)
        self._reader = row_reader(options)
        self._pieces: list[bytes] = []
        self._size = 0
        self._wait_for = 1
        self._finished = False
        self._header_left = options.header
        self._line = 0
        self._stretches: list[_Stretch] = []
        self.row_count = 0
        """Rows taken so far."""
        self.ended = False
        """Whether an end-of-data marker has been read; what follows it is ignored."""

    def feed(self, data: bytes) -> None:
        """Take the next piece of the stream, cut anywhere."""
        if data and not self.ended:
            self._pieces.append(data)
            self._size += len(data)

    def finish(self) -> None:
        """End the data: the next `take` returns all that is left, a last line without newline included."""
        self._finished = True
        self._wait_for = 1

    def take(self) -> list[TextColumn] | None:
        """Return the rows that have come whole since the last call, one column of texts for each name.

        None where there are none. Raises `SqlError` 22P04 (not the format, or not as many columns) and 22021
        (not UTF-8), with the input line as its context; the parser is of no use after that.
        """
        if self._size < self._wait_for:
            return None
        data = b"".join(self._pieces)
        taken: list[TextColumn] | None = None
        at = self._skip_header(data) if self._header_left else 0
        if not self._header_left and at < len(data):
            try:
                taken, at = self._take_plain(data, at)
            except _NotPlain:
                taken, at = self._take_exact(data, at)
        left = b"" if self.ended else data[at:]
        self._pieces = [left]
        self._size = len(left)
        # A look that finds no row is not repeated before there is twice as much, so that the work stays
        # linear in a row of many pieces.
        self._wait_for = self._size + 1 if taken is not None else 2 * self._size + 1
        return taken

    def line_of(self, row: int) -> int:
        """Return the input line, from 1, on which a row ends."""
        stretch = self._stretches[bisect_right(self._stretches, row, key=lambda s: s.first_row) - 1]
        if stretch.lines is not None:
            return int(stretch.lines[row - stretch.first_row])
        return stretch.first_line + row - stretch.first_row

    def locate(self, error: SqlError, row: int, column: int, text: str | None) -> SqlError:
        """Return the error of a value with the context that tells where in the input it stands."""
        value = "null input" if text is None else _quoted(text)
        context = f"COPY {self._table}, line {self.line_of(row)}, column {self._columns[column]}: {value}"
        return _with_context(error, context)

    def _at_line(self, error: SqlError, content: bytes | None) -> SqlError:
        context = f"COPY {self._table}, line {self._line}"
        if content is not None:
            context += ": " + _quoted(content.decode(errors="replace"))
        return _with_context(error, context)

    def _read_line(self, data: bytes, at: int) -> Line | None:
        breaks = 1
        try:
            line = self._reader.line(data, at, self._finished)
            if line is None:
                return None
            breaks = line.breaks
            if not line.content.isascii() or b"\0" in line.content:
                decode_text(line.content)
        except SqlError as error:
            self._line += breaks
            raise self._at_line(error, None) from None
        self._line += breaks
        self.ended = line.is_last
        return line

    def _skip_header(self, data: bytes) -> int:
        """Return where the first row begins; 0 as long as the header is not there whole."""
        line = self._read_line(data, 0)
        if line is None:
            return 0
        self._header_left = False
        return line.end

    def _take_exact(self, data: bytes, at: int) -> tuple[list[TextColumn] | None, int]:
        """Split row by row; return the columns and where the first row that is not whole begins."""
        rows: list[list[Field]] = []
        lines: list[int] = []
        first_line = self._line + 1
        while not self.ended:
            line = self._read_line(data, at)
            if line is None:
                break
            at = line.end
            if not line.is_last or line.content:
                rows.append(self._fields(line.content))
                lines.append(self._line)
        if not rows:
            return None, at
        one_line_each = lines[-1] - first_line + 1 == len(rows)
        self._note(len(rows), first_line, None if one_line_each else np.array(lines, np.int64))
        columns = [
            text_from_arrow(pa.array(values, pa.large_binary()).cast(pa.large_string()), TEXT)
            for values in zip(*rows, strict=True)
        ]
        return columns, at

    def _fields(self, content: bytes) -> list[Field]:
        """Return a row's fields, as many as there are columns."""
        names = self._columns
        try:
            if not names:
                if content:
                    raise SqlError("22P04", "extra data after last expected column")
                return []
            fields = self._reader.fields(content)
            if len(fields) > len(names):
                raise SqlError("22P04", "extra data after last expected column")
            if len(fields) < len(names):
                raise SqlError("22P04", f'missing data for column "{names[len(fields)]}"')
        except SqlError as error:
            raise self._at_line(error, content) from None
        return fields

    def _note(self, count: int, first_line: int, lines: NDArray[np.int64] | None) -> None:
        self._stretches.append(_Stretch(self.row_count, first_line, lines))
        self.row_count += count

    def _take_plain(self, data: bytes, at: int) -> tuple[list[TextColumn] | None, int]:
        """Split with Arrow's reader, and return as `_take_exact` does; raises `_NotPlain`."""
        if not self._columns or data.find(b"\0", at) >= 0:
            raise _NotPlain
        eol = self._reader.eol or _first_line_end(data, at)
        if eol == b"\r":
            raise _NotPlain
        if self._finished and not data.endswith(eol):
            data += eol
        is_csv = self._options.format == "csv"
        view = np.frombuffer(data, np.uint8)[at:]
        if is_csv:
            stop, inner_lines = _plain_csv(data, at, view, eol, self._options)
        else:
            stop, inner_lines = _plain_text(data, at, view, eol, self._options), None
        if self._finished and stop < len(data):
            raise _NotPlain
        if stop == at:
            return None, at
        columns = self._read_csv(data, at, stop)
        if not is_csv:
            columns = [_unescaped_column(column) for column in columns]
        count = len(columns[0])
        expected = data.count(b"\n", at, stop) if inner_lines is None else len(inner_lines)
        if count != expected:
            raise _NotPlain
        self._reader.eol = eol
        lines = None if inner_lines is None else inner_lines + self._line
        self._note(count, self._line + 1, lines)
        self._line += data.count(b"\n", at, stop)
        return columns, stop

    def _read_csv(self, data: bytes, at: int, stop: int) -> list[TextColumn]:
        options = self._options
        quote: Any = options.quote if options.format == "csv" else False
        names = [str(number) for number in range(len(self._columns))]
        try:
            table = csv.read_csv(
                pa.BufferReader(pa.py_buffer(data)[at:stop] if at or stop < len(data) else data),
                csv.ReadOptions(
                    use_threads=False, block_size=min(stop - at + 1, _LARGEST_BLOCK), column_names=names
                ),
                csv.ParseOptions(
                    delimiter=options.delimiter,
                    quote_char=quote,
                    double_quote=True,
                    newlines_in_values=quote is not False,
                    ignore_empty_lines=False,
                ),
                csv.ConvertOptions(
                    column_types=dict.fromkeys(names, pa.large_string()),
                    null_values=[options.null],
                    strings_can_be_null=True,
                    quoted_strings_can_be_null=False,
                ),
            )
        except pa.ArrowInvalid:
            raise _NotPlain from None
        return [text_from_arrow(column, TEXT) for column in table.columns]


def _quoted(text: str) -> str:
    shown = text if len(text) <= _LONGEST_QUOTATION else text[:_LONGEST_QUOTATION] + "..."
    return f'"{shown}"'


def _with_context(error: SqlError, context: str) -> SqlError:
    return SqlError(error.sqlstate, error.message, detail=error.detail, hint=error.hint, context=context)


def _first_line_end(data: bytes, at: int) -> bytes:
    """Guess the line end from the first newline; raises `_NotPlain` where there is none or a lone `\\r`."""
    newline = data.find(b"\n", at)
    if newline < 0:
        raise _NotPlain
    return b"\r\n" if newline > at and data[newline - 1] == _RETURN else b"\n"


def _plain_text(data: bytes, at: int, view: NDArray[np.uint8], eol: bytes, options: CopyOptions) -> int:
    """Return the end of the last whole row of plain text-format data; raises `_NotPlain`."""
    stop = _end_of_lines(data, at, eol)
    view = view[: stop - at]
    slashes = np.flatnonzero(view == _BACKSLASH)
    if len(slashes):
        runs = np.flatnonzero(np.diff(slashes, prepend=-2) != 1)
        run_starts = np.repeat(slashes[runs], np.diff(np.append(runs, len(slashes))))
        escaping = slashes[(slashes - run_starts) % 2 == 0]
        structural = [ord(options.delimiter), _NEWLINE, _RETURN, ord(".")]
        if np.isin(view[escaping + 1], structural).any():
            raise _NotPlain
    return stop


def _unescaped_column(column: TextColumn) -> TextColumn:
    """Undo the escapes of plain text-format data, all at once; raises `_NotPlain` where one makes no text."""
    rows = _rows_with(column, "\\")
    if rows is None:
        return column
    escaped = column.arrow.filter(pa.array(rows)).cast(pa.large_binary()).to_pylist()
    values = unescape(b"\0".join(escaped)).split(b"\0")
    if len(values) != len(escaped):
        raise _NotPlain
    try:
        texts = pa.array(values, pa.large_binary()).cast(pa.large_string())
    except pa.ArrowInvalid:
        raise _NotPlain from None
    return text_from_arrow(pc.replace_with_mask(column.arrow, pa.array(rows), texts), TEXT)


def _end_of_lines(data: bytes, at: int, eol: bytes) -> int:
    """Return the end of the last whole line of data without quotes and escapes, `at` where there is none.

    Raises `_NotPlain` unless carriage returns stand in line ends alone, and in all or none of them, and
    where a line is empty: Arrow's reader would take it for a row of NULLs.
    """
    stop = max(data.rfind(b"\n") + 1, at)
    if data.startswith(eol, at) or data.find(b"\n" + eol, at, stop) >= 0:
        raise _NotPlain
    if eol == b"\n":
        if data.find(b"\r", at, stop) >= 0:
            raise _NotPlain
    else:
        returns, newlines = data.count(b"\r", at, stop), data.count(b"\n", at, stop)
        if not returns == newlines == data.count(b"\r\n", at, stop):
            raise _NotPlain
    return stop


def _plain_csv(
    data: bytes, at: int, view: NDArray[np.uint8], eol: bytes, options: CopyOptions
) -> tuple[int, NDArray[np.int64] | None]:
    """Return the end of the last whole row of plain CSV, and where rows span lines the last line of each.

    Lines count from 1 at `at`. Raises `_NotPlain`. In plain CSV a field has no quotes, or begins and ends
    with one and has only doubled ones between.
    """
    if data.startswith(b"\\.", at) or data.find(b"\n\\.", at) >= 0:
        raise _NotPlain
    quote = ord(options.quote)
    if data.find(options.quote.encode(), at) < 0:
        return _end_of_lines(data, at, eol), None
    if options.escape != options.quote:
        raise _NotPlain
    quotes = np.flatnonzero(view == quote)
    newlines = np.flatnonzero(view == _NEWLINE)
    outside = np.searchsorted(quotes, newlines) % 2 == 0
    ends = newlines[outside]
    if not len(ends):
        return at, None
    if ends[0] < len(eol) or (np.diff(ends) == len(eol)).any():
        raise _NotPlain
    length = int(ends[-1]) + 1
    view = view[:length]
    quotes = quotes[: np.searchsorted(quotes, length)]
    if len(quotes):
        _check_quotes(view, quotes, ord(options.delimiter))
    returns = np.flatnonzero(view == _RETURN)
    loose = returns[np.searchsorted(quotes, returns) % 2 == 0]
    if eol == b"\n":
        if len(loose):
            raise _NotPlain
    elif not np.array_equal(loose + 1, ends):
        raise _NotPlain
    if len(ends) == np.searchsorted(newlines, length):
        return at + length, None
    return at + length, np.flatnonzero(outside)[: len(ends)] + 1


def _check_quotes(view: NDArray[np.uint8], quotes: NDArray[np.int64], delimiter: int) -> None:
    """Raise `_NotPlain` unless quotes, taken in pairs, stand around fields or double one another."""
    opening, closing = quotes[0::2], quotes[1::2]
    doubled = closing[:-1] + 1 == opening[1:]
    begins = np.isin(view[opening - 1], [delimiter, _NEWLINE])
    begins[0] |= opening[0] == 0
    begins[1:] |= doubled
    ends = np.isin(view[closing + 1], [delimiter, _NEWLINE, _RETURN])
    ends[:-1] |= doubled
    if not (begins.all() and ends.all()):
        raise _NotPlain


_CONTROLS: Final = (("\b", "b"), ("\f", "f"), ("\n", "n"), ("\r", "r"), ("\t", "t"), ("\v", "v"))


def join_rows(columns: Sequence[TextColumn], options: CopyOptions) -> tuple[bytes, NDArray[np.int64]]:
    """Return rendered columns (at least one) as lines of the format, and the end of each line in them.

    A line ends with a newline, as the protocol has it. Escapes and quotes are put only into columns that
    need them: a million rows of three plain columns take 0.2 s.
    """
    if options.format == "csv":
        parts = [_csv_fields(column, options, len(columns) == 1) for column in columns]
    else:
        parts = [_text_fields(column, options) for column in columns]
    separators = [options.delimiter] * (len(parts) - 1) + ["\n"]
    pieces: list[Any] = []
    for part, separator in zip(parts, separators, strict=True):
        pieces += [part, pa.scalar(separator, pa.large_string())]
    nothing = pa.scalar("", pa.large_string())
    lines = text_from_arrow(
        pc.binary_join_element_wise(*pieces, nothing, null_handling="replace", null_replacement=options.null),
        TEXT,
    )
    first, last = int(lines.offsets[0]), int(lines.offsets[-1])
    return lines.data[first:last].tobytes(), lines.offsets[1:] - first


def header_line(names: Sequence[str], options: CopyOptions) -> bytes:
    """Return the line of column names that HEADER asks for."""
    columns = [text_from_arrow(pa.array([name], pa.large_string()), TEXT) for name in names]
    return join_rows(columns, options)[0]


def _text_fields(column: TextColumn, options: CopyOptions) -> Any:
    """Escape backslashes, control characters with a letter of their own, and the delimiter."""
    texts = column.arrow
    pairs = [("\\", "\\"), *_CONTROLS]
    if all(options.delimiter != character for character, _ in pairs):
        pairs.append((options.delimiter, options.delimiter))
    for character, letter in pairs:
        if _rows_with(column, character) is not None:
            texts = pc.replace_substring(texts, character, "\\" + letter)
    return texts


def _csv_fields(column: TextColumn, options: CopyOptions, alone: bool) -> Any:
    """Quote what would be read otherwise: as NULL, as several fields or rows, or as the end of the data."""
    texts = column.arrow
    quoting = np.asarray(pc.equal(texts, options.null).fill_null(False))
    if alone:
        quoting = quoting | np.asarray(pc.equal(texts, "\\.").fill_null(False))
    special = _rows_with(column, options.delimiter + options.quote + "\n\r")
    if special is not None:
        quoting = quoting | special
    if not quoting.any():
        return texts
    inner = texts
    for character in dict.fromkeys((options.escape, options.quote)):
        inner = pc.replace_substring(inner, character, options.escape + character)
    quote = pa.scalar(options.quote, pa.large_string())
    quoted = pc.binary_join_element_wise(quote, inner, quote, pa.scalar("", pa.large_string()))
    return pc.if_else(pa.array(quoting), quoted, texts)


def _rows_with(column: TextColumn, characters: str) -> Mask | None:
    """Return a mask of the rows that have any of these one-byte characters, None where no row has."""
    first, last = int(column.offsets[0]), int(column.offsets[-1])
    data = column.data[first:last]
    wanted = np.zeros(256, np.bool_)
    wanted[list(characters.encode())] = True
    at = np.flatnonzero(wanted[data] if len(characters) > 1 else data == ord(characters))
    if not len(at):
        return None
    mask = np.zeros(len(column), np.bool_)
    mask[np.searchsorted(column.offsets, at + first, "right") - 1] = True
    return mask
