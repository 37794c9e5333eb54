"""The fields of events and answers that anybody here reads. Apart from events.py, since msgspec makes these classes:
mypyc can't compile them.
"""

from __future__ import annotations

from typing import Any

import msgspec


class _Details(msgspec.Struct):
    cached_tokens: Any = None


class UsageFields(msgspec.Struct):
    """`usage` as engines write it, in OpenAI's names and Anthropic's."""

    prompt_tokens: Any = None
    completion_tokens: Any = None
    prompt_tokens_details: _Details | None = None
    input_tokens: Any = None
    output_tokens: Any = None
    input_tokens_details: _Details | None = None
    cache_read_input_tokens: Any = None
    cache_creation_input_tokens: Any = None
    total_tokens: Any = None


class _Choice(msgspec.Struct):
    delta: dict[str, Any] | None = None
    text: Any = None
    finish_reason: Any = None
    logprobs: Any = None


class _Inner(msgspec.Struct):
    usage: UsageFields | None = None
    error: Any = None


class _Event(msgspec.Struct):
    type: Any = None
    choices: list[_Choice] | None = None
    usage: UsageFields | None = None
    error: Any = None
    response: _Inner | None = None
    message: Any = None


class _Body(msgspec.Struct):
    usage: UsageFields | None = None


decode_event = msgspec.json.Decoder(_Event).decode
decode_body = msgspec.json.Decoder(_Body).decode
