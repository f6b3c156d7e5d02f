from __future__ import annotations

import pickle

import pytest

from layby.peek.answer import EncodedRows
from layby.pgwire import copy_data
from layby.pgwire.copy_data import CopyDataEncoder
from layby.sql.plan import CopyOptions
from layby.types.column import column_from_values
from layby.types.scalar import INTEGER, TEXT
from tests.pgwire.frontend import message

_TEXT = CopyOptions(format="text", delimiter="\t", null="\\N", header=False, quote='"', escape='"')
_CSV = CopyOptions(format="csv", delimiter=",", null="", header=False, quote='"', escape='"')

_NUMBERS = [1, None, -3]
_NAMES = ["a\tb", "", None]


@pytest.mark.parametrize(
    ("options", "lines"),
    [
        (_TEXT, [b"1\ta\\tb\n", b"\\N\t\n", b"-3\t\\N\n"]),
        (_CSV, [b"1,a\tb\n", b',""\n', b"-3,\n"]),
    ],
)
@pytest.mark.parametrize("chunk", [2, 100])
def test_each_row_is_a_line_in_a_message(
    options: CopyOptions, lines: list[bytes], chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copy_data, "CHUNK", chunk)
    columns = [column_from_values(INTEGER, _NUMBERS), column_from_values(TEXT, _NAMES)]
    encoded = pickle.loads(pickle.dumps(CopyDataEncoder((INTEGER, TEXT), options)))(columns, 3)
    messages = [message("d", line) for line in lines]
    assert encoded.data == b"".join(messages)
    ends = [len(b"".join(messages[: at + 1])) for at in range(3)]
    assert (list(encoded.ends), encoded.count) == (ends, 3)


def test_no_rows_are_no_messages() -> None:
    columns = [column_from_values(INTEGER, [])]
    assert CopyDataEncoder((INTEGER,), _TEXT)(columns, 0) == EncodedRows(b"", [], 0)
