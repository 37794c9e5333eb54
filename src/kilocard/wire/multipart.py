"""Find one small field of a multipart/form-data body (audio routes carry `model` that way)."""

from __future__ import annotations

import re
from typing import NamedTuple

from kilocard.core.errors import ClientError

_BOUNDARY = re.compile(rb'boundary=(?:"([^"\r\n]{1,70})"|([^\s;,"]{1,70}))', re.I)
_NAME = re.compile(rb'\bname="?([^";\r\n]*)"?', re.I)


class Field(NamedTuple):
    value: bytes
    start: int  # offsets of the value in the body
    end: int


def boundary(content_type: bytes) -> bytes:
    """The boundary of a multipart content type. Raises ClientError if there is none."""
    match = _BOUNDARY.search(content_type)
    if match is None:
        raise ClientError("multipart/form-data without a boundary in Content-Type.", code="invalid_multipart")
    return match.group(1) or match.group(2)


def find(body: bytes, mark: bytes, name: bytes) -> Field | None:
    """The first part called `name`, or None. Only part heads are read, so a large file costs one search."""
    delimiter = b"--" + mark
    at = 0 if body.startswith(delimiter) else body.find(b"\r\n" + delimiter) + 2
    if at == 1:  # find said -1
        raise ClientError("The multipart body does not hold its boundary.", code="invalid_multipart")
    while True:
        at += len(delimiter)
        if body.startswith(b"--", at):
            return None
        head_end = body.find(b"\r\n\r\n", at)
        if head_end < 0:
            raise ClientError("A part of the multipart body has no end of its header.", code="invalid_multipart")
        end = body.find(b"\r\n" + delimiter, head_end + 2)
        if end < 0:
            raise ClientError("The multipart body is cut off.", code="invalid_multipart")
        start = head_end + 4
        for line in body[at:head_end].split(b"\r\n"):
            key, _, value = line.partition(b":")
            if key.strip().lower() == b"content-disposition":
                match = _NAME.search(value)
                if match is not None and match.group(1) == name:
                    return Field(body[start : max(start, end)], start, max(start, end))
        at = end + 2
