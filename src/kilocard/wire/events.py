"""What one event of a stream means: preamble, content, usage, end. OpenAI's three stream shapes and Anthropic's."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import msgspec

from kilocard.wire.event_fields import UsageFields, decode_body, decode_event
from kilocard.wire.tokens import MOST_TOKENS


class Usage(NamedTuple):
    """Tokens as the engine counted them; None: not said."""

    #: all of the prompt, with what came out of the prefix cache
    prompt: int | None = None
    output: int | None = None
    #: of the prompt: what came out of the prefix cache
    cached: int | None = None

    def merged(self, newer: Usage) -> Usage:
        """Field by field, the newer value where it says something (usage is replaced in parts, never summed)."""
        return Usage(
            self.prompt if newer.prompt is None else newer.prompt,
            self.output if newer.output is None else newer.output,
            self.cached if newer.cached is None else newer.cached,
        )


class Meaning(NamedTuple):
    """`content`: the client would see text (or anything that can't be taken back)."""

    content: bool
    usage: Usage | None = None
    #: nothing but usage: an event that exists only because include_usage was asked for
    only_usage: bool = False
    #: the engine failed (an error that blames the request, with a 4xx code, is content like any other)
    error: bool = False
    #: after it the answer is complete: what else may come is framing
    last: bool = False
    #: it says why the text ends (`finish_reason`), or that it is an error: after it a stream may end
    finished: bool = False
    #: of an error that blames the request: its HTTP status
    refusal: int = 0


_CONTENT = Meaning(True)
_DONE = Meaning(True, last=True)
_PREAMBLE = Meaning(False)
_LINE = re.compile(rb"\r\n|\n|\r")

#: events that only announce a response (OpenAI Responses, Anthropic Messages)
_ANNOUNCE = frozenset(
    {"response.created", "response.in_progress", "response.queued", "message_start", "ping", "content_block_start"}
)
#: events that end a stream, as [DONE] does (Anthropic Messages, OpenAI Responses)
_LAST = frozenset({"message_stop", "response.completed", "response.incomplete"})
#: and those behind which one may end (OpenAI's speech, transcriptions and images; Responses)
_ENDS = frozenset(
    {"speech.audio.done", "transcript.text.done", "image_generation.completed", "image_edit.completed", "error"}
)

#: and one that ends it with an error (OpenAI Responses), which names the request's faults by other codes than these
_FAILED = "response.failed"
_ENGINES_CODES = frozenset({"server_error", "rate_limit_exceeded"})


def payload(event: bytes) -> bytes | None:
    """The data of one SSE event (WHATWG HTML §9.2.6: lines joined by \\n, one space after the colon dropped).

    None where the event has no data line (a comment or a bare field).
    """
    if event[:6] == b"data: " and event[-2:] == b"\n\n" and event.count(b"\n") == 2 and b"\r" not in event:
        return event[6:-2]  # the form that every engine here uses
    lines = []
    for line in _LINE.split(event):
        if line[:5] == b"data:":
            lines.append(line[6:] if line[5:6] == b" " else line[5:])
        elif line == b"data":
            lines.append(b"")
    return b"\n".join(lines) if lines else None


def _int(value: object) -> int | None:
    return value if type(value) is int and 0 <= value <= MOST_TOKENS else None


def usage_of(raw: UsageFields | None) -> Usage | None:
    """None where it says no number that can be believed."""
    if raw is None:
        return None
    prompt = _int(raw.prompt_tokens)
    output = _int(raw.completion_tokens)
    details = raw.prompt_tokens_details or raw.input_tokens_details
    if details is not None:
        cached = _int(details.cached_tokens)
        created = None
    else:
        cached = _int(raw.cache_read_input_tokens)
        created = _int(raw.cache_creation_input_tokens)
    if prompt is None:
        prompt = _int(raw.input_tokens)
        if prompt is not None and details is None:
            # Anthropic's input_tokens leaves out what the cache gave and took; OpenAI's has all of it.
            prompt += (cached or 0) + (created or 0)
    usage = Usage(prompt, _int(raw.output_tokens) if output is None else output, cached)
    return None if usage == _NOTHING else usage


_NOTHING = Usage()


def read(data: bytes) -> Meaning:
    """What an event's payload means. What is not understood counts as content: it can't be taken back."""
    if data == b"[DONE]":
        return _DONE
    try:
        event = decode_event(data)
    except (msgspec.DecodeError, RecursionError):
        return _CONTENT
    usage = usage_of(event.usage)
    if event.error is not None:
        refusal = _refusal(event.error)
        return Meaning(True, usage, error=not refusal, finished=True, refusal=refusal)
    if event.choices is not None:
        if not event.choices:
            return Meaning(False, usage, only_usage=event.usage is not None)
        for choice in event.choices:
            if choice.finish_reason is not None:
                return Meaning(True, usage, finished=True)
            if choice.text or choice.logprobs:
                break
            # `role` alone, or with empty strings beside it, says nothing yet
            if choice.delta and any(value for key, value in choice.delta.items() if key != "role"):
                break
        else:
            return Meaning(False, usage) if usage else _PREAMBLE
        return Meaning(True, usage) if usage else _CONTENT
    if isinstance(event.type, str):
        if event.response is not None:
            usage = usage_of(event.response.usage) or usage
            if event.type == _FAILED:
                refusal = 0 if _is_the_engines(event.response.error) else _refusal(event.response.error) or 400
                return Meaning(True, usage, error=not refusal, last=True, refusal=refusal)
        elif isinstance(event.message, dict):
            usage = _message_usage(event.message) or usage
        finished = event.type in _ENDS
        return Meaning(event.type not in _ANNOUNCE, usage, last=event.type in _LAST, finished=finished)
    return Meaning(True, usage) if usage else _CONTENT


def _refusal(error: object) -> int:
    """The status of an error that blames the request; 0: it does not."""
    code = error.get("code") if isinstance(error, dict) else None
    return code if type(code) is int and 400 <= code < 500 else 0


def _is_the_engines(error: object) -> bool:
    code = error.get("code") if isinstance(error, dict) else None
    return code in _ENGINES_CODES if isinstance(code, str) else not _refusal(error)


def _message_usage(message: dict[str, Any]) -> Usage | None:
    try:
        return usage_of(msgspec.convert(message.get("usage"), UsageFields | None))
    except msgspec.ValidationError:
        return None


def body_usage(body: bytes) -> Usage | None:
    """Usage of a whole (not streamed) response body; None where it says none or is no JSON object."""
    try:
        raw = decode_body(body).usage
        if raw is None:
            return None
        prompt, output = raw.prompt_tokens, raw.completion_tokens
        if (
            type(prompt) is int
            and type(output) is int
            and 0 <= prompt <= MOST_TOKENS
            and 0 <= output <= MOST_TOKENS
            and raw.prompt_tokens_details is None
        ):
            return tuple.__new__(Usage, (prompt, output, None))  # the usual case, at half the cost of Usage(…)
        usage = usage_of(raw)
        if usage is None and (total := _int(raw.total_tokens)) is not None:
            return Usage(total, 0)  # rerank and embeddings of many engines say no more: nothing was generated
        return usage
    except (msgspec.DecodeError, RecursionError):
        return None


#: a quote inside JSON text is escaped, so this is a key; its object may hold one more level
_USAGE = re.compile(rb'"usage"\s*:\s*\{[^{}]*+(?:\{[^{}]*+\}[^{}]*+)*+\}')


def part_usage(part: bytes) -> Usage | None:
    """Usage that stands whole in a part of a response body; the last one, if there are several."""
    found = None
    for match in _USAGE.finditer(part):
        found = body_usage(b"{%b}" % match[0]) or found
    return found
