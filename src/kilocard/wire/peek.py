"""One typed look at a JSON request body: the few fields that routing needs, nothing decoded twice."""

from __future__ import annotations

import msgspec

from kilocard.core.errors import ClientError
from kilocard.wire.peek_fields import Peek, decode_fields, decode_list, decode_prompts
from kilocard.wire.tokens import DEFAULT_OUTPUT_TOKENS


def peek(body: bytes) -> Peek:
    """Read the routing fields of a JSON object.

    Raises ClientError (400, in OpenAI's shape) where the body is no JSON object or `model` is no string.
    """
    try:
        fields = decode_fields(body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        if not body.strip():
            raise ClientError("The request body is empty; send a JSON object.", code="empty_body") from None
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise ClientError(f"The request body is not a JSON object: {reason}.", code="invalid_json") from None
    model = fields.model
    if model is not None and (type(model) is not str or not model):
        raise ClientError("'model' must be a non-empty string.", code="invalid_model", param="model")
    stream = fields.stream
    options = fields.stream_options
    limit = None
    for count in (fields.max_completion_tokens, fields.max_tokens, fields.max_output_tokens):
        if type(count) is int and count >= 0:
            limit = count
            break
    return Peek(
        model,
        stream in _TRUE if type(stream) is str else bool(stream),
        DEFAULT_OUTPUT_TOKENS if limit is None else limit,
        type(options) is dict and options.get("include_usage") is True,
        options is not msgspec.UNSET,
        limit is not None,
        1 if fields.n is None and fields.best_of is None else max(_count(fields.n), _count(fields.best_of)),
    )


def _count(value: object) -> int:
    return value if type(value) is int and value > 1 else 1


def prompts(body: bytes) -> int:
    """How many prompts a body of /v1/completions has: `prompt` may be a text, a list of token numbers, or a list of
    texts or of such lists. `body` has been peeked at."""
    raw = bytes(decode_prompts(body).prompt).strip()
    if raw[:1] != b"[":
        return 1
    inner = raw[1:].lstrip()[:1]
    return len(decode_list(raw)) if inner in (b'"', b"[") else 1


#: the strings that pydantic, and so most engines, reads as true
_TRUE = frozenset({"true", "True", "1", "on", "yes", "y", "t"})
