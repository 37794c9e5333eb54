"""Error bodies: OpenAI's shape, Anthropic's for its own route, and the same as the last event of a stream."""

from __future__ import annotations

import msgspec

from kilocard.core.errors import KilocardError

_encode = msgspec.json.Encoder().encode

#: Anthropic's documented error types by HTTP status
_ANTHROPIC = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
}


def error_body(error: KilocardError, *, anthropic: bool = False) -> bytes:
    """The JSON body for an error. `param` and `code` are always there, as OpenAI's clients expect."""
    if anthropic:
        kind = _ANTHROPIC.get(error.http_status, "api_error")
        return _encode({"type": "error", "error": {"type": kind, "message": error.message, "code": error.code}})
    detail = {"message": error.message, "type": error.kind, "param": error.param, "code": error.code}
    return _encode({"error": detail})


def error_event(error: KilocardError, *, anthropic: bool = False) -> bytes:
    """One SSE event that tells a client in mid-stream what went wrong. No [DONE] follows."""
    name = b"event: error\n" if anthropic else b""
    return name + b"data: " + error_body(error, anthropic=anthropic) + b"\n\n"
