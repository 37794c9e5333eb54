"""What a body is, when it is not the metrics text that was hoped for. Pure."""

from __future__ import annotations

from enum import Enum

#: bytes of a strange body that an error shows
SHOWN = 60


class Body(Enum):
    TEXT = "text"
    JSON = "JSON"
    HTML = "an HTML page"
    EMPTY = "an empty page"
    BINARY = "binary data"


def sniff(body: bytes) -> Body:
    """By its first bytes; the content type is not asked, because engines set it wrongly."""
    start = body[:256].lstrip()
    if not start:
        return Body.EMPTY if not body[256:].strip() else Body.TEXT
    if start[:1] in (b"{", b"["):
        return Body.JSON
    if start[:1] == b"<":
        return Body.HTML
    if b"\0" in start or start[:2] == b"\x1f\x8b":
        return Body.BINARY
    return Body.TEXT


def excerpt(body: bytes) -> str:
    """The first bytes, safe to print on one line."""
    return ascii(body[:SHOWN].decode("utf-8", "replace"))
