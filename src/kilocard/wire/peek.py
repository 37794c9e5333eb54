"""One typed look at a JSON request body: the few fields that routing needs, nothing decoded twice."""

from __future__ import annotations

import math
import re

import msgspec

from kilocard.core.errors import ClientError
from kilocard.wire.peek_fields import Peek, decode_fields, decode_list, decode_prompts
from kilocard.wire.tokens import DEFAULT_OUTPUT_TOKENS, MOST_TOKENS


def peek(body: bytes) -> Peek:
    """Read the routing fields of a JSON object.

    Raises ClientError (400, in OpenAI's shape) where the body is no JSON object or `model` is no string.
    """
    try:
        fields = decode_fields(body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        if not body.strip():
            raise ClientError("The request body is empty; send a JSON object.", code="empty_body") from None
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else _marked(body) or str(error)
        raise ClientError(f"The request body is not a JSON object: {reason}.", code="invalid_json") from None
    model = fields.model
    if model is not None and (type(model) is not str or not model):
        raise ClientError("'model' must be a non-empty string.", code="invalid_model", param="model")
    stream = fields.stream
    options = fields.stream_options
    limit = -1
    endless = False
    # Which of several counts, each engine decides in its own way: the largest is a bound whichever it takes.
    for count in (fields.max_tokens, fields.max_completion_tokens, fields.max_output_tokens, fields.n_predict):
        if count is not None:
            number = count if type(count) is int else _whole(count)
            if number is None:
                continue
            if number < 0:
                endless = True  # what llama.cpp reads -1 as
            elif number > limit:
                limit = number if number <= MOST_TOKENS else MOST_TOKENS
    if not limit and fields.max_completion_tokens is not None:
        endless = True  # SGLang: `max_completion_tokens or max_tokens`
    limited = limit >= 0 and not endless
    return Peek(
        model,
        stream if type(stream) is bool else _true(stream),
        limit if limited else max(limit, DEFAULT_OUTPUT_TOKENS),
        type(options) is dict and _true(options.get("include_usage")),
        options is not msgspec.UNSET,
        limited,
        1
        if fields.n is None and fields.best_of is None and fields.n_cmpl is None
        else min(max(1, *(_whole(count) or 1 for count in (fields.n, fields.best_of, fields.n_cmpl))), MOST_TOKENS),
    )


def _marked(body: bytes) -> str:
    """What is wrong with a text whose first bytes say how it is written, as editors on Windows do; "" for none."""
    if body.startswith(b"\xef\xbb\xbf"):
        return "it begins with a byte-order mark; send UTF-8 without one"
    if body.startswith((b"\xff\xfe", b"\xfe\xff")):
        return "it is UTF-16; send UTF-8"
    return ""


def _true(value: object) -> bool:
    """A flag as the most generous engine reads it."""
    return value in _TRUE if type(value) is str else bool(value)


def _whole(value: object) -> int | None:
    """A number as the most generous engine reads it. pydantic (vLLM, SGLang) takes 5.0, "5", "5.0" and true for whole
    numbers, llama.cpp cuts off what is behind the point. None: for no engine a number."""
    if type(value) is int:
        return value
    if type(value) is float:
        return math.ceil(value)
    if type(value) is bool:
        return 1 if value else 0
    if type(value) is str:
        match = _NUMBER.fullmatch(value.strip())
        return None if match is None else int(match[1] + (match[2] or "0"))
    return None


def prompts(body: bytes) -> int:
    """How many prompts a body of /v1/completions has: `prompt` may be a text, a list of token numbers, or a list of
    texts or of such lists; vLLM answers `prompt_embeds`, one or a list, besides. `body` has been peeked at."""
    fields = decode_prompts(body)
    return max(1, _prompts(bytes(fields.prompt).strip()) + _prompts(bytes(fields.prompt_embeds).strip()))


def _prompts(raw: bytes) -> int:
    if raw in (b"", b"null"):
        return 0
    if raw[:1] == b"[" and raw[1:].lstrip()[:1] in (b'"', b"["):
        return len(decode_list(raw))
    return 1


#: a text that pydantic reads as a whole number, but for numbers of more than 999 digits. Never goes back over what it
#: has read: a text may be as long as a body
_NUMBER = re.compile(r"([+-]?)(?=[0-9])(?:0_?)*+((?:[0-9](?:_?[0-9]){0,998})?)(?:\.0++)?", re.ASCII)
#: the strings that pydantic, and so most engines, reads as true
_TRUE = frozenset({"true", "True", "1", "on", "yes", "y", "t"})
