"""What one event of a streamed answer, or one whole JSON answer, says to a load tester. Pure.

Chat and plain completions in OpenAI's form, and what engines made of it: `reasoning_content` (vLLM, SGLang, llama.cpp)
or `reasoning` (Ollama, newer vLLM) before the content, usage in each event or in a last one without choices, errors as
`{"error": …}` or `{"object": "error", …}`.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from kilocard.wire.event_fields import UsageFields
from kilocard.wire.events import Usage, usage_of


class Said(msgspec.Struct):
    #: "content", "reasoning" or "tool_calls"; None: nothing that a token stands behind
    kind: str | None = None
    #: characters of it
    size: int = 0
    finish_reason: str | None = None
    usage: Usage | None = None
    #: a word for the kind of error, fit for a table, and the server's own words
    error: str | None = None
    message: str = ""


class _Delta(msgspec.Struct):
    content: Any = None
    reasoning_content: Any = None
    reasoning: Any = None
    refusal: Any = None
    tool_calls: Any = None
    function_call: Any = None


class _Choice(msgspec.Struct):
    delta: _Delta | None = None
    message: _Delta | None = None
    text: Any = None
    finish_reason: Any = None


class _Event(msgspec.Struct):
    choices: list[_Choice] | None = None
    usage: UsageFields | None = None
    error: Any = None
    object: Any = None
    message: Any = None
    code: Any = None


_decode = msgspec.json.Decoder(_Event).decode
_NOTHING = Said()
#: codes that may stand in a table as they are; a sentence may not, it would make a class of its own for each request
_CODE = re.compile(r"[A-Za-z0-9_.-]{1,40}")


def read_event(payload: bytes) -> Said:
    """Never raises: what can't be read is an error of the answer."""
    try:
        event = _decode(payload)
    except (msgspec.DecodeError, RecursionError):
        return Said(error="unreadable", message=payload[:200].decode("utf-8", "replace"))
    if event.error is not None or event.object == "error":
        return _failure(event)
    usage = usage_of(event.usage)
    choices = event.choices
    if not choices:
        return _NOTHING if usage is None else Said(usage=usage)
    if len(choices) > 1:
        return _several(choices, usage)
    choice = choices[0]
    kind, size = _tokens(choice)
    reason = choice.finish_reason
    return Said(kind, size, reason if isinstance(reason, str) else None, usage)


def _several(choices: list[_Choice], usage: Usage | None) -> Said:
    """More than one choice in an event (`n` above 1): one arrival."""
    first, total, reason = None, 0, None
    for choice in choices:
        kind, size = _tokens(choice)
        first = first or kind
        total += size
        if isinstance(choice.finish_reason, str):
            reason = choice.finish_reason
    return Said(first, total, reason, usage)


def _tokens(choice: _Choice) -> tuple[str | None, int]:
    delta = choice.delta or choice.message
    if delta is None:
        return ("content", len(choice.text)) if isinstance(choice.text, str) and choice.text else (None, 0)
    # In the order in which a model says them: an event that ends the thinking may carry both.
    kind, size = None, 0
    thought = delta.reasoning_content or delta.reasoning
    if thought:
        kind, size = "reasoning", _length(thought)
    text = delta.content or delta.refusal
    if text:
        kind, size = kind or "content", size + _length(text)
    calls = delta.tool_calls or delta.function_call
    if calls:
        kind = kind or "tool_calls"
        size += len(msgspec.json.encode(calls))
    return kind, size


def _length(text: Any) -> int:
    return len(text) if isinstance(text, str) else 1


def _failure(event: _Event) -> Said:
    error = event.error
    fields = error if isinstance(error, dict) else {"code": event.code, "message": error or event.message}
    for name in ("code", "type"):
        word = str(fields.get(name))
        if fields.get(name) is not None and _CODE.fullmatch(word):
            break
    else:
        word = "unnamed"
    return Said(error=word, message=str(fields.get("message") or error)[:500])
