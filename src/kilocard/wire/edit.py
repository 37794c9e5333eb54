"""Change top-level keys of a JSON body without touching the bytes of the other values."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

_decode = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_options = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_encode = msgspec.json.Encoder().encode
_INCLUDE_USAGE = b'"stream_options":{"include_usage":true}'
_TRUE = msgspec.Raw(b"true")


def edit(body: bytes, changes: Mapping[str, object]) -> bytes:
    """The object `body` with `changes` applied; other values keep their bytes, numbers their digits.

    `body` must be a JSON object (peek has checked it); duplicate keys collapse to the last, as engines read them.
    """
    fields: dict[str, object] = dict(_fields(body))
    fields.update(changes)
    return _encode(fields)


def one_spelling(body: bytes) -> bytes:
    """Without keys that are one of the gateway's own in other letters: for an engine that reads `Model` as `model` and
    takes the last, another model than the one that was allowed."""
    fields = _fields(body)
    kept = {key: value for key, value in fields.items() if key in _OURS or key.casefold() not in _OURS}
    return body if len(kept) == len(fields) else _encode(kept)


#: keys that the gateway decides by
_OURS = frozenset(
    {
        "model",
        "stream",
        "stream_options",
        "max_tokens",
        "max_completion_tokens",
        "max_output_tokens",
        "n_predict",
        "n",
        "best_of",
        "n_cmpl",
    }
)


def _fields(body: bytes) -> dict[str, msgspec.Raw]:
    try:
        return _decode(body)
    except msgspec.DecodeError:
        # A key that is no UTF-8 (peek looks into no key but its own). Most engines will refuse it, and Go reads it as
        # this: the sign for what could not be read.
        return _decode(body.decode("utf-8", "replace").encode())


def with_usage(body: bytes, has_options: bool) -> bytes:
    """Ask for the usage chunk at the end of a stream, keeping the client's other stream options."""
    if not has_options:  # the usual case: one splice, no parsing
        start = body.index(b"{") + 1
        rest = body[start:]
        comma = b"" if rest.lstrip()[:1] == b"}" else b","
        return body[:start] + _INCLUDE_USAGE + comma + rest
    raw = _fields(body)["stream_options"]
    options: dict[str, object] = {}
    if bytes(raw) != b"null":
        try:
            options.update(_options(raw))
        except msgspec.DecodeError:
            return body  # of the wrong type: the engine shall say what it thinks of that
    options["include_usage"] = _TRUE
    return edit(body, {"stream_options": options})
