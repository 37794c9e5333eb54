"""Find one small field of a multipart/form-data body (audio routes carry `model` that way)."""

from __future__ import annotations

import re
from typing import NamedTuple

from kilocard.core.errors import ClientError

_BOUNDARY = re.compile(rb'boundary=(?:"([^"\r\n]{1,70})"|([^\s;,"]{1,70}))', re.I)
#: one parameter of a Content-Disposition; what stands in quotes is no further parameter
_PARAMETER = re.compile(rb';[ \t]*([^=;"\s]+)[ \t]*=[ \t]*(?:"((?:[^"\\]|\\.)*)"|([^;"]*))')
#: RFC 2046 §5.1.1: what makes of a boundary a delimiter; `--boundaryX` is text of the part
_EDGE = re.compile(rb"--|[ \t]*\r\n")


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
    """The part called `name`, or None. Only part heads are read, so a large file costs one search.

    Raises ClientError for what is no form, and where two parts have that name: of those some readers take the first,
    others the last, and the one that was allowed would not be the one that is used.
    """
    delimiter = b"\r\n--" + mark
    found = None
    if body.startswith(delimiter[2:]) and _EDGE.match(body, len(delimiter) - 2):
        at = len(delimiter) - 2
    else:
        at = _next(body, delimiter, 0, "does not hold its boundary") + len(delimiter)
    while not body.startswith(b"--", at):
        head_end = body.find(b"\r\n\r\n", at)
        if head_end < 0:
            raise ClientError("A part of the multipart body has no end of its header.", code="invalid_multipart")
        start = head_end + 4
        end = _next(body, delimiter, start, "is cut off")
        for line in body[at:head_end].split(b"\r\n"):
            key, _, value = line.partition(b":")
            if key.strip().lower() == b"content-disposition" and _called(value, name):
                if found is not None:
                    raise ClientError(
                        f"The form has more than one {name.decode()!r}; send one.", code="invalid_multipart"
                    )
                found = Field(body[start:end], start, end)
        at = end + len(delimiter)
    return found


def _next(body: bytes, delimiter: bytes, start: int, otherwise: str) -> int:
    """Where the next delimiter begins."""
    while (at := body.find(delimiter, start)) >= 0:
        if _EDGE.match(body, at + len(delimiter)):
            return at
        start = at + 1
    raise ClientError(f"The multipart body {otherwise}.", code="invalid_multipart")


def _called(disposition: bytes, name: bytes) -> bool:
    return any(
        match[1].lower() == b"name" and (match[3].strip() if match[2] is None else match[2]) == name
        for match in _PARAMETER.finditer(disposition)
    )
