"""Whole answers: which their clients should not get."""

from __future__ import annotations

import pytest

from kilocard.dispatch.events import Fault
from kilocard.gateway.gathering import unfit
from kilocard.gateway.heads import read_response_head

JSON = b"content-type: application/json; charset=utf-8"


def fault(body: bytes, *, status: int = 200, length: int | None = None, line: bytes = JSON) -> Fault | None:
    head, _ = read_response_head(b"HTTP/1.0 %d X\r\n%b" % (status, line), status)
    failure = unfit(head, length, body)
    return None if failure is None else failure[0]


@pytest.mark.parametrize("body", [b"", b" ", b"{", b'{"a":"x', b'{"a":nul', b'{"a":-', b'{"a":1.', b"[1,"])
def test_a_part_of_an_answer_that_its_connection_ended(body: bytes) -> None:
    assert fault(body) is Fault.RESET
    assert fault(body, length=len(body)) is None, "with a length nobody doubts it"
    assert fault(body, line=b"content-type: text/plain") is None


@pytest.mark.parametrize(
    "body",
    [
        b"{}",
        b'{"logprob":-Infinity,"score":NaN}',  # json.dumps of Python
        b"\xef\xbb\xbf{}",  # a byte order mark
        b"{}\n{}\n",
        b'{"a":"\xff"}',
        b"[" * 100_000 + b"]" * 100_000,
    ],
    ids=["plain", "NaN", "BOM", "lines", "no UTF-8", "deep"],
)
def test_what_is_odd_before_its_end_is_no_part(body: bytes) -> None:
    assert fault(body) is None


def test_a_refusal_without_words_is_one() -> None:
    """No request may look like a death of every replica that refuses it."""
    assert fault(b"", status=401) is None
    assert fault(b'{"error"', status=422) is None
    assert fault(b"", status=500) is Fault.STATUS
