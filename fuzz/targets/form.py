"""Multipart forms: what is found lies where it is said to lie, and a name that is there twice is refused."""

from __future__ import annotations

from kilocard.core.errors import ClientError
from kilocard.wire import multipart

_PART = b'--B\r\nContent-Disposition: form-data; name="%b"\r\n\r\n%b\r\n'
SEEDS = [
    _PART % (b"model", b"m") + _PART % (b"file", b"\x00\x01") + b"--B--\r\n",
    _PART % (b"model", b"m") + _PART % (b"model", b"n") + b"--B--",
    b"preamble\r\n--B \t\r\ncontent-disposition:form-data;name=model\r\nx: y\r\n\r\n\r\n--Bx\r\n--B--",
]


def check(data: bytes) -> None:
    try:
        found = multipart.find(data, b"B", b"model")
    except ClientError:
        return
    if found is not None:
        assert data[found.start : found.end] == found.value
        again = multipart.find(data[: found.start] + b"other" + data[found.end :], b"B", b"model")
        assert again is not None and again.value == b"other"
    try:
        mark = multipart.boundary(data)
    except ClientError:
        return
    assert 1 <= len(mark) <= 70
