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


def test_two_fields_of_one_name_are_refused() -> None:
    """Some readers take the first, others the last: whichever was allowed, the other would be used."""
    part = b'--B\r\nContent-Disposition: form-data; name="model"\r\n\r\n%b\r\n'
    with pytest.raises(ClientError, match="more than one 'model'"):
        find(part % b"a" + part % b"b" + b"--B--\r\n", b"B", b"model")


def test_text_that_looks_like_a_delimiter_is_text() -> None:
    body = (
        b'--B\r\nContent-Disposition: form-data; name="file"\r\n\r\n'
        b'\r\n--Bx\r\nContent-Disposition: form-data; name="model"\r\n\r\nforged\r\n'
        b'--B \t\r\nContent-Disposition: form-data; name="model"\r\n\r\nreal\r\n--B--'
    )
    found = find(body, b"B", b"model")
    assert found is not None and found.value == b"real"


@pytest.mark.parametrize(
    "disposition",
    [b'form-data; filename="; name=model"; name="file"', b'form-data; filename="a\\"; name=model;"; name=x'],
)
def test_a_name_inside_quotes_is_no_name(disposition: bytes) -> None:
    body = b"--B\r\nContent-Disposition: " + disposition + b"\r\n\r\nx\r\n--B--"
    assert find(body, b"B", b"model") is None


def test_an_empty_field_has_a_place_to_write_into() -> None:
    body = b'--B\r\nContent-Disposition: form-data; name="model"\r\n\r\n\r\n--B--'
    found = find(body, b"B", b"model")
    assert found is not None and found.value == b""
    again = find(body[: found.start] + b"m" + body[found.end :], b"B", b"model")
    assert again is not None and again.value == b"m"
