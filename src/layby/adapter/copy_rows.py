"""The exact rules of COPY's text and CSV formats: where a row ends, and what its fields are.

A reader takes one row at a time from bytes that may end anywhere. It raises `SqlError` without a context:
only the parser above it counts lines.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Protocol

from layby.errors import SqlError
from layby.sql.plan import CopyOptions
from layby.types.text import decode_text

Field = bytes | None

_ESCAPE: Final = re.compile(rb"\\(?:([0-7]{1,3})|x([0-9A-Fa-f]{1,2})|(.)|$)", re.DOTALL)
_CONTROLS: Final = {b"b": b"\b", b"f": b"\f", b"n": b"\n", b"r": b"\r", b"t": b"\t", b"v": b"\v"}
_COMMON: Final = {b"\\" + letter: byte for letter, byte in _CONTROLS.items()} | {b"\\\\": b"\\"}


@dataclass(frozen=True, slots=True)
class Line:
    """The bytes of one row without its line end; the next begins at `end`, `breaks` input lines further on.

    `is_last` tells that an end-of-data marker follows (`content` is then what stood before it on its line).
    """

    content: bytes
    end: int
    breaks: int
    is_last: bool = False


class RowReader(Protocol):
    """One of the two formats. `eol` is the line end in use, None until the first is seen."""

    eol: bytes | None

    def line(self, data: bytes, at: int, final: bool) -> Line | None:
        """Return the row that begins at `at`; None where it is not there whole, or nothing is left.

        `final` tells that no data follows. Raises 22P04.
        """

    def fields(self, content: bytes) -> list[Field]:
        """Return the fields of a row, None where NULL. Raises 22P04 and 22021."""


def _bad_format(message: str, hint: str | None = None) -> SqlError:
    return SqlError("22P04", message, hint=hint)


class _LineEnds:
    """Recognises line ends, all of which must be like the first."""

    def __init__(self, is_csv: bool) -> None:
        self.eol: bytes | None = None
        self._found = "unquoted {} found in data" if is_csv else "literal {} found in data"
        self._hint = "Use quoted CSV field to represent {0}." if is_csv else 'Use "\\{1}" to represent {0}.'

    def length(self, data: bytes, at: int, final: bool) -> int | None:
        """Return the bytes of the line end at `at`, None where a `\\r` may have a `\\n` after it."""
        if data[at : at + 1] == b"\n":
            if self.eol is None:
                self.eol = b"\n"
            elif self.eol != b"\n":
                raise self._stray("newline", "n")
            return 1
        if self.eol == b"\n":
            raise self._stray("carriage return", "r")
        if at + 1 == len(data) and not final and self.eol != b"\r":
            return None
        found = b"\r\n" if self.eol != b"\r" and data[at + 1 : at + 2] == b"\n" else b"\r"
        if self.eol is None:
            self.eol = found
        elif self.eol != found:
            raise self._stray("carriage return", "r")
        return len(found)

    def _stray(self, name: str, letter: str) -> SqlError:
        return _bad_format(self._found.format(name), self._hint.format(name, letter))


class TextReader(_LineEnds):
    """The text format: a backslash makes data of the byte that follows, newline and delimiter included."""

    _UP_TO_END: Final = re.compile(rb"(?:[^\\\r\n]++|\\[^.])*+", re.DOTALL)

    def __init__(self, options: CopyOptions) -> None:
        super().__init__(is_csv=False)
        self._delimiter = options.delimiter.encode()
        self._null = options.null.encode()
        self._field = re.compile(
            rb"(?:[^\\%(d)s]++|\\.|\\$)*+" % {b"d": re.escape(self._delimiter)}, re.DOTALL
        )

    def line(self, data: bytes, at: int, final: bool) -> Line | None:
        """Return the row at `at`; `\\.` ends the data wherever it stands."""
        found = self._UP_TO_END.match(data, at)
        stop = at if found is None else found.end()
        if stop == len(data) or (stop + 1 == len(data) and data[stop:] == b"\\"):
            return Line(data[at:], len(data), 1) if final and at < len(data) else None
        if data[stop : stop + 1] == b"\\":
            return self._marker(data, at, stop, final)
        length = self.length(data, stop, final)
        if length is None:
            return None
        return Line(data[at:stop], stop + length, 1)

    def _marker(self, data: bytes, at: int, stop: int, final: bool) -> Line | None:
        after = data[stop + 2 : stop + 4]
        if len(after) < len(self.eol or b"\n") and not final:
            return None
        if not after.startswith((b"\r", b"\n")):
            raise _bad_format("end-of-copy marker corrupt")
        if self.eol is not None and not after.startswith(self.eol):
            raise _bad_format("end-of-copy marker does not match previous newline style")
        return Line(data[at:stop], len(data), 1, is_last=True)

    def fields(self, content: bytes) -> list[Field]:
        """Split at unescaped delimiters; NULL is told before escapes are undone."""
        null = self._null
        if b"\\" not in content:
            return [None if raw == null else raw for raw in content.split(self._delimiter)]
        return [None if raw == null else _unescaped(raw) for raw in self._raw_fields(content)]

    def _raw_fields(self, content: bytes) -> list[bytes]:
        raw: list[bytes] = []
        at = 0
        while at <= len(content):
            found = self._field.match(content, at)
            end = at if found is None else found.end()
            raw.append(content[at:end])
            at = end + 1
        return raw


def _unescaped(raw: bytes) -> bytes:
    if b"\\" not in raw:
        return raw
    value = unescape(raw)
    if not value.isascii() or b"\0" in value:
        decode_text(value)
    return value


def unescape(data: bytes) -> bytes:
    """Undo the escapes of the text format; what comes out need not be valid text."""
    return _ESCAPE.sub(_meaning, data)


def _meaning(escape: re.Match[bytes]) -> bytes:
    known = _COMMON.get(escape[0])
    if known is not None:
        return known
    octal, hexadecimal, other = escape.groups()
    if octal is not None:
        return bytes([int(octal, 8) & 0xFF])
    if hexadecimal is not None:
        return bytes([int(hexadecimal, 16)])
    if other is None:
        return b""
    return _CONTROLS.get(other, other)


class CsvReader(_LineEnds):
    """The CSV format: a quote turns quoting on or off wherever it stands in a field."""

    def __init__(self, options: CopyOptions) -> None:
        super().__init__(is_csv=True)
        self._delimiter = options.delimiter.encode()
        self._null = options.null.encode()
        self._quote = options.quote.encode()
        self._escape = options.escape.encode()
        names = {
            b"q": re.escape(self._quote),
            b"e": re.escape(self._escape),
            b"d": re.escape(self._delimiter),
        }
        if self._quote == self._escape:
            quoted = rb"(?:[^%(q)s]++|%(q)s%(q)s)*+" % names
            escaped = rb"%(q)s(%(q)s)" % names
        else:
            quoted = rb"(?:[^%(q)s%(e)s]++|%(e)s[%(q)s%(e)s]|%(e)s(?![%(q)s%(e)s]))*+" % names
            escaped = rb"%(e)s([%(q)s%(e)s])" % names
        section = rb"%(q)s(" % names + quoted + rb")%(q)s" % names
        self._up_to_end = re.compile(rb"(?:[^%(q)s\r\n]++|" % names + section + rb")*+", re.DOTALL)
        self._up_to_delimiter = re.compile(rb"(?:[^%(q)s%(d)s]++|" % names + section + rb")*+", re.DOTALL)
        self._section = re.compile(section, re.DOTALL)
        self._escaped = re.compile(escaped, re.DOTALL)

    def line(self, data: bytes, at: int, final: bool) -> Line | None:
        """Return the row at `at`, which may hold line ends within quotes."""
        found = self._up_to_end.match(data, at)
        stop = at if found is None else found.end()
        length: int | None
        if stop == len(data) or data[stop : stop + 1] == self._quote:
            # An open quote takes all that is left; splitting the fields tells that it was never closed.
            stop, length = len(data), 0
            if not final or at == stop:
                return None
        else:
            length = self.length(data, stop, final)
        if length is None:
            return None
        content = data[at:stop]
        if content == b"\\." and length:
            return Line(b"", len(data), 1, is_last=True)
        return Line(content, stop + length, 1 + content.count(b"\r" if self.eol == b"\r" else b"\n"))

    def fields(self, content: bytes) -> list[Field]:
        """Split at delimiters outside quotes; only a field without any quote can be NULL."""
        null, quote = self._null, self._quote
        if quote not in content:
            return [None if raw == null else raw for raw in content.split(self._delimiter)]
        fields: list[Field] = []
        at = 0
        while at <= len(content):
            found = self._up_to_delimiter.match(content, at)
            end = at if found is None else found.end()
            if content[end : end + 1] == quote:
                raise _bad_format("unterminated CSV quoted field")
            raw = content[at:end]
            if quote in raw:
                fields.append(self._section.sub(self._unquoted, raw))
            else:
                fields.append(None if raw == null else raw)
            at = end + 1
        return fields

    def _unquoted(self, section: re.Match[bytes]) -> bytes:
        return self._escaped.sub(rb"\1", section[1])


def row_reader(options: CopyOptions) -> RowReader:
    """Return the reader of the options' format."""
    return CsvReader(options) if options.format == "csv" else TextReader(options)
