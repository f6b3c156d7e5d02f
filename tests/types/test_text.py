from __future__ import annotations

import pytest

from layby.errors import SqlError
from layby.types.formats import encode_binary, parse
from layby.types.scalar import INTEGER, TEXT, UNKNOWN, SqlType
from layby.types.text import decode_text
from tests.types.helpers import refusal


@pytest.mark.parametrize("type_", [TEXT, UNKNOWN], ids=repr)
def test_text_is_taken_as_it_is(type_: SqlType) -> None:
    assert parse(type_, "  é \n") == "  é \n"


@pytest.mark.parametrize("type_", [TEXT, INTEGER], ids=repr)
def test_a_nul_is_refused_in_every_type(type_: SqlType) -> None:
    assert refusal(type_, "1\0") == ("22021", 'invalid byte sequence for encoding "UTF8": 0x00')


def test_a_nul_is_not_sent() -> None:
    with pytest.raises(SqlError, match="0x00"):
        encode_binary(TEXT, "a\0")


@pytest.mark.parametrize(
    ("data", "shown"),
    [
        (b"a\xff", "0xff"),
        (b"\xe9x", "0xe9 0x78"),
        (b"a\xc3", "0xc3"),
        (b"\xe2\x28\xa1z", "0xe2 0x28 0xa1"),
        (b"\xed\xa0\x80", "0xed 0xa0 0x80"),
        (b"\xf4\x90\x80\x80", "0xf4 0x90 0x80 0x80"),
        (b"\x80", "0x80"),
        (b"\0\xff", "0x00"),
    ],
)
def test_bytes_that_are_not_utf8_are_named(data: bytes, shown: str) -> None:
    with pytest.raises(SqlError) as caught:
        decode_text(data)
    assert caught.value.sqlstate == "22021"
    assert caught.value.message == f'invalid byte sequence for encoding "UTF8": {shown}'
