"""RESP: replies are found however their bytes are cut."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kilocard.stores.resp import Replies, Reply, ReplyError, command

LEAF = st.one_of(st.binary(max_size=40), st.integers(-(2**60), 2**60), st.none(), st.just(ReplyError("ERR no")))
REPLY = st.recursive(LEAF, lambda inner: st.lists(inner, max_size=4), max_leaves=8)


def encoded(reply: Reply) -> bytes:
    if isinstance(reply, bytes):
        return b"$%d\r\n%b\r\n" % (len(reply), reply)
    if isinstance(reply, int):
        return b":%d\r\n" % reply
    if isinstance(reply, ReplyError):
        return b"-%b\r\n" % str(reply).encode()
    if isinstance(reply, list):
        return b"*%d\r\n%b" % (len(reply), b"".join(map(encoded, reply)))
    return b"$-1\r\n"


@given(st.lists(REPLY, max_size=5), st.lists(st.integers(1, 30), max_size=60))
def test_replies_are_the_same_however_they_are_cut(replies: list[Reply], cuts: list[int]) -> None:
    data = b"".join(map(encoded, replies))
    reader = Replies()
    found: list[Reply] = []
    place = 0
    for cut in [*cuts, len(data)]:
        found += reader.feed(data[place : place + cut])
        place += cut
    found += reader.feed(data[place:])
    assert list(map(repr, found)) == list(map(repr, replies))


@given(st.binary(max_size=60))
def test_garbage_is_a_value_error_or_waits(data: bytes) -> None:
    with contextlib.suppress(ValueError):
        Replies().feed(data)


def test_a_command() -> None:
    assert command("GET", b"k\r\n", 7) == b"*3\r\n$3\r\nGET\r\n$3\r\nk\r\n\r\n$1\r\n7\r\n"


def test_errors_have_a_kind() -> None:
    (error,) = Replies().feed(b"-NOSCRIPT No matching script.\r\n")
    assert isinstance(error, ReplyError) and error.kind == "NOSCRIPT"


def test_another_protocol_is_told() -> None:
    with pytest.raises(ValueError, match="no RESP"):
        Replies().feed(b"HTTP/1.1 400 Bad Request\r\n")
