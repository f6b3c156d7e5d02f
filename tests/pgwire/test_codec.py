from __future__ import annotations

from itertools import pairwise
from struct import pack

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from layby.errors import SqlError
from layby.memory.arena import HEAP
from layby.pgwire import codec
from layby.pgwire.codec import Body, Decoder, ProtocolError
from layby.pgwire.large_body import LargeBody
from tests.pgwire import frontend

_names = st.sampled_from(["", "s1", "läufer"])
_values = st.one_of(st.none(), st.binary(max_size=30))
_messages = st.one_of(
    st.builds(frontend.query, st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))),
    st.builds(frontend.parse, _names, st.just("SELECT $1"), st.lists(st.integers(0, 2**32 - 1), max_size=3)),
    st.builds(
        frontend.bind,
        _names,
        _names,
        st.lists(_values, max_size=4),
        st.lists(st.integers(0, 1), max_size=2),
        st.lists(st.integers(0, 1), max_size=2),
    ),
    st.builds(frontend.execute, _names, st.integers(0, 2**31 - 1)),
    st.builds(frontend.describe, st.sampled_from("SP"), _names),
    st.just(frontend.SYNC),
    st.builds(lambda data: frontend.message("d", data), st.binary(max_size=50)),
    st.just(frontend.COPY_DONE),
)


def _fed(pieces: list[bytes]) -> list[tuple[int, bytes]]:
    """Decode, with neighbouring CopyData put together as their pieces are cut where the reads are."""
    decoder = Decoder()
    found: list[tuple[int, bytes]] = []
    for piece in pieces:
        for kind, body in decoder.feed(piece):
            assert isinstance(body, bytes)
            if kind == codec.COPY_DATA and found and found[-1][0] == codec.COPY_DATA:
                found[-1] = (kind, found[-1][1] + body)
            elif kind != codec.COPY_DATA or body:
                found.append((kind, body))
    assert decoder.error is None
    return found


@settings(max_examples=150, deadline=None)
@given(st.lists(_messages, max_size=6), st.lists(st.integers(0, 400), max_size=8))
def test_however_a_stream_is_cut_its_messages_are_the_same(messages: list[bytes], cuts: list[int]) -> None:
    stream = frontend.startup(user="a") + b"".join(messages)
    edges = sorted({0, len(stream), *(cut for cut in cuts if cut < len(stream))})
    pieces = [stream[start:stop] for start, stop in pairwise(edges)]
    expected: list[tuple[int, bytes]] = [(codec.STARTUP, frontend.startup(user="a")[4:])]
    for message in messages:
        kind, body = message[0], message[5:]
        if kind == codec.COPY_DATA and expected[-1][0] == codec.COPY_DATA:
            expected[-1] = (kind, expected[-1][1] + body)
        elif kind != codec.COPY_DATA or body:
            expected.append((kind, body))
    assert _fed(pieces) == expected
    assert _fed([bytes([byte]) for byte in stream]) == expected


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=60), st.booleans(), st.sampled_from("BCDEPQdcfHSX"))
def test_junk_gives_the_protocol_error_and_nothing_else(junk: bytes, started: bool, kind: str) -> None:
    decoder = Decoder()
    if started:
        decoder.feed(frontend.startup(user="a"))
    decoder.feed(junk)
    assert decoder.error is None or decoder.error.sqlstate == "08P01"
    for read in (
        codec.read_string,
        codec.read_parse,
        codec.read_bind,
        codec.read_execute,
        codec.read_target,
    ):
        try:
            read(junk)
        except SqlError as error:
            assert error.sqlstate in ("08P01", "22021")
    try:
        codec.read_startup(pack(">i", 196608) + junk)
    except SqlError as error:
        assert error.sqlstate in ("08P01", "22021")


def whole(body: Body) -> bytes:
    return body if isinstance(body, bytes) else body.data.tobytes()


@pytest.mark.parametrize("cut", [1, 4, 5, 6, 40, 58, 60, 70])
def test_a_large_bind_is_put_together_in_its_arena_wherever_it_is_cut(
    monkeypatch: pytest.MonkeyPatch, cut: int
) -> None:
    monkeypatch.setattr(codec, "LARGE", 50)
    decoder = Decoder(HEAP)
    decoder.feed(frontend.startup(user="a"))
    bind = frontend.bind("p", "s", [b"0123456789" * 4])
    assert len(bind) == 59
    stream = bind + frontend.SYNC + frontend.bind("q") + frontend.execute("q")
    found, partial = decoder.feed(stream[:cut]), decoder.partial
    found += decoder.feed(stream[cut:])
    assert (partial, decoder.partial) == (True, False)
    body = found[0][1]
    assert isinstance(body, LargeBody) == (5 <= cut < 59)
    assert [kind for kind, _ in found] == [codec.BIND, codec.SYNC, codec.BIND, codec.EXECUTE]
    assert whole(body) == bind[5:]
    assert codec.read_bind_target(body) == ("p", "s")


def test_a_large_bind_that_comes_whole_is_its_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codec, "LARGE", 50)
    decoder = Decoder(HEAP)
    bind = frontend.bind("p", "s", [b"0123456789" * 4])
    assert decoder.feed(frontend.startup(user="a") + bind)[1] == (codec.BIND, bind[5:])


def test_many_types_of_a_parse_are_an_array() -> None:
    name, text, oids = codec.read_parse(frontend.parse("s", "SELECT 1", [23, 0] * 200)[5:])
    assert (name, text) == ("s", "SELECT 1")
    assert isinstance(oids, np.ndarray)
    assert oids.tolist() == [23, 0] * 200
    with pytest.raises(ProtocolError, match="insufficient data left in message"):
        codec.read_parse(frontend.parse("s", "SELECT 1", [23, 0] * 200)[5:-1])
    with pytest.raises(ProtocolError, match="invalid message format"):
        codec.read_parse(frontend.parse("s", "SELECT 1", [23, 0] * 200)[5:] + b"x")


def test_the_fields_of_a_bind_are_read() -> None:
    body = frontend.bind("p", "s", [b"1", None, b""], [0, 1, 0], [1])[5:]
    assert codec.read_bind(body) == ("p", "s", (0, 1, 0), [b"1", None, b""], (1,))


def test_the_fields_of_a_parse_are_read() -> None:
    assert codec.read_parse(frontend.parse("s", "SELECT 1", [23, 0])[5:]) == ("s", "SELECT 1", (23, 0))


def test_a_negative_row_limit_is_none() -> None:
    assert codec.read_execute(frontend.execute("p", -5)[5:]) == ("p", 0)


@pytest.mark.parametrize("cut", range(1, 31))
def test_a_bind_cut_short_is_refused(cut: int) -> None:
    body = frontend.bind("p", "s", [b"abc"], [1], [0, 1])[5:]
    with pytest.raises(ProtocolError):
        codec.read_bind(body[:-cut] if cut < len(body) else b"")


def test_a_bind_with_bytes_behind_it_is_refused() -> None:
    with pytest.raises(ProtocolError, match="invalid message format"):
        codec.read_bind(frontend.bind("p", "s", [b"abc"])[5:] + b"x")


def test_a_parameter_longer_than_its_message_is_refused() -> None:
    body = b"\0\0" + pack(">HHi", 0, 1, 100) + b"abc" + pack(">H", 0)
    with pytest.raises(ProtocolError):
        codec.read_bind(body)


def test_a_parameter_of_negative_length_is_refused() -> None:
    body = b"\0\0" + pack(">HHi", 0, 1, -2) + pack(">H", 0)
    with pytest.raises(ProtocolError, match="invalid message format"):
        codec.read_bind(body)


def test_text_that_is_no_utf8_shows_its_bytes() -> None:
    with pytest.raises(SqlError, match='invalid byte sequence for encoding "UTF8": 0xe4 0x62 0x63') as caught:
        codec.read_string(b"a\xe4bcd\0")
    assert caught.value.sqlstate == "22021"


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"Q" + pack(">i", 3), "invalid message length"),
        (b"Q" + pack(">i", -1), "invalid message length"),
        (b"Q" + pack(">i", 0x4000_0000), "invalid message length"),
        (b"S" + pack(">i", 10_001), "invalid message length"),
        (b"\x7f" + pack(">i", 4), "invalid frontend message type 127"),
        (b"\x00", "invalid frontend message type 0"),
    ],
)
def test_a_bad_header_ends_decoding_at_once(data: bytes, message: str) -> None:
    decoder = Decoder()
    before = decoder.feed(frontend.startup(user="a") + frontend.SYNC + data)
    assert [kind for kind, _ in before] == [codec.STARTUP, codec.SYNC]
    assert decoder.error is not None
    assert decoder.error.message == message
    assert decoder.feed(frontend.SYNC) == []


@pytest.mark.parametrize("length", [-1, 0, 7, 10_005, 2**31 - 1])
def test_a_startup_packet_of_impossible_length_is_refused(length: int) -> None:
    decoder = Decoder()
    assert decoder.feed(pack(">i", length)) == []
    assert decoder.error is not None
    assert decoder.error.message == "invalid length of startup packet"


def test_after_a_request_for_encryption_comes_a_startup_packet() -> None:
    decoder = Decoder()
    found = decoder.feed(
        frontend.request(codec.GSSENC_REQUEST)
        + frontend.request(codec.SSL_REQUEST)
        + frontend.startup(user="a")
        + frontend.SYNC
    )
    assert [kind for kind, _ in found] == [codec.STARTUP] * 3 + [codec.SYNC]


def test_nothing_is_taken_after_a_cancel_request() -> None:
    decoder = Decoder()
    found = decoder.feed(frontend.request(codec.CANCEL_REQUEST, pack(">ii", 1, 2)) + b"anything")
    ((_, body),) = found
    assert isinstance(body, bytes)
    assert codec.read_cancel(body) == (1, 2)


def test_copy_data_is_passed_on_before_its_message_is_complete() -> None:
    decoder = Decoder()
    decoder.feed(frontend.startup(user="a"))
    message = frontend.message("d", b"x" * 1000)
    assert decoder.feed(message[:105]) == [(codec.COPY_DATA, b"x" * 100)]
    assert decoder.partial
    assert decoder.feed(message[105:] + frontend.COPY_DONE) == [
        (codec.COPY_DATA, b"x" * 900),
        (codec.COPY_DONE, b""),
    ]
    assert not decoder.partial


def test_a_message_in_pieces_is_put_together_once() -> None:
    decoder = Decoder()
    decoder.feed(frontend.startup(user="a"))
    message = frontend.query("x" * 200_000)
    for start in range(0, len(message) - 1000, 1000):
        assert decoder.feed(message[start : start + 1000]) == []
        # What waits are the pieces as they came: none has been copied into another since the header was.
        assert len(decoder._kept) == start // 1000 + 1
    (found,) = decoder.feed(message[len(message) - len(message) % 1000 - 1000 * (len(message) % 1000 == 0) :])
    assert found == (codec.QUERY, b"x" * 200_000 + b"\0")


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (codec.QUERY, b"x" * 1_000_000 + b"\0"),
        (codec.PARSE, b"s\0" + b"x" * 1_000_000 + b"\0\0\0"),
        (codec.BIND, b"\0\0" + b"x" * 1_000_000),
        (codec.FUNCTION_CALL, b"x" * 1_000_000),
    ],
    ids=["query", "parse", "bind", "function call"],
)
def test_a_large_message_is_copied_to_its_place_as_its_pieces_come(kind: int, body: bytes) -> None:
    decoder = Decoder()
    decoder.feed(frontend.startup(user="a"))
    message = frontend.message(chr(kind), body)
    assert decoder.feed(message[:1000]) == []
    large = decoder._large
    assert large is not None
    place = large.data
    for start in range(1000, len(message) - 1000, 1000):
        assert decoder.feed(message[start : start + 1000]) == []
        assert (decoder._kept, large._filled) == ([], start + 1000 - 5)
    (found,) = decoder.feed(message[start + 1000 :])
    assert found == (kind, large)
    assert large.data is place
    assert place.tobytes() == body
    assert not decoder.partial


@pytest.mark.parametrize(
    "rest",
    [b"", b"\0\0", b"user", b"user\0a", b"user\0a\0", b"user\0a\0\0\0", b"user\0\0", b"\0a\0\0"],
)
def test_a_startup_packet_without_its_terminator_is_refused(rest: bytes) -> None:
    with pytest.raises(ProtocolError, match="invalid startup packet layout"):
        codec.read_startup(pack(">i", 196608) + rest)


def test_startup_parameters_are_read() -> None:
    packet = codec.read_startup(frontend.startup(user="ä", database="")[4:])
    assert (packet.major, packet.minor, packet.parameters) == (3, 0, {"user": "ä", "database": ""})
