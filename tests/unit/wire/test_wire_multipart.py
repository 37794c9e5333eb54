"""Finding `model` in a multipart body without reading the file beside it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kilocard.core.errors import ClientError
from kilocard.wire.multipart import boundary, find


def form(mark: bytes, *parts: tuple[bytes, bytes]) -> bytes:
    body = b""
    for name, value in parts:
        body += b"--" + mark + b'\r\nContent-Disposition: form-data; name="' + name + b'"\r\n\r\n' + value + b"\r\n"
    return body + b"--" + mark + b"--\r\n"


def test_the_field_and_where_it_stands() -> None:
    body = form(b"xyz", (b"file", b"RIFF\r\n\x00--xy"), (b"model", b"whisper"), (b"language", b"zh"))
    field = find(body, b"xyz", b"model")
    assert field is not None
    assert field.value == b"whisper" == body[field.start : field.end]
    assert find(body, b"xyz", b"prompt") is None


@pytest.mark.parametrize(
    ("header", "mark"),
    [
        (b"multipart/form-data; boundary=abc", b"abc"),
        (b'multipart/form-data; charset=utf-8; Boundary="a b c"', b"a b c"),
    ],
)
def test_the_boundary(header: bytes, mark: bytes) -> None:
    assert boundary(header) == mark


@pytest.mark.parametrize(
    "body", [b"", b"nothing", b"--xyz", b"--xyz\r\nContent-Disposition: form-data", b"--xyz\r\na\r\n\r\nb"]
)
def test_broken_forms_are_explained(body: bytes) -> None:
    with pytest.raises(ClientError):
        find(body, b"xyz", b"model")
    with pytest.raises(ClientError):
        boundary(b"multipart/form-data")


@given(value=st.binary(max_size=50), before=st.binary(max_size=50))
def test_any_value_is_found_back(value: bytes, before: bytes) -> None:
    mark = b"----unlikely-6d1f"
    body = form(mark, (b"file", before), (b"model", value))
    field = find(body, mark, b"model")
    assert field is not None and field.value == value
