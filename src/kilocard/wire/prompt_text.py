"""A request's prompt as the engine's chat template will see it, roughly: what comes first, in one piece of bytes.

Texts stay as they are written in the JSON (escapes and all), so nothing is decoded that is not looked at, and clients
that write the same text in another way have another hash: a miss, no error.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from kilocard.core.prefix import HOME_TOKENS, Prefix, key_of, text_keys
from kilocard.wire.nonces import without_nonces
from kilocard.wire.tokens import BYTES_PER_TOKEN

#: whose messages are templates rather than what somebody wrote
_SYSTEM = (b'"system"', b'"developer"')
#: between two parts; in no UTF-8
_END = b"\xfe"
_NULL = b"null"

_Raw = msgspec.Raw


class _Message(msgspec.Struct):
    role: _Raw = _Raw(b"")
    content: _Raw = _Raw(b"")
    tool_calls: _Raw = _Raw(b"")
    #: items of /v1/responses that are no messages
    arguments: _Raw = _Raw(b"")
    output: _Raw = _Raw(b"")


class _Body(msgspec.Struct):
    """Of four kinds of bodies: chat completions, completions, Anthropic's messages, responses."""

    tools: _Raw = _Raw(b"")
    system: _Raw = _Raw(b"")
    instructions: _Raw = _Raw(b"")
    messages: _Raw = _Raw(b"")
    prompt: _Raw = _Raw(b"")
    input: _Raw = _Raw(b"")
    #: vLLM shares no cache between requests that differ in it
    cache_salt: _Raw = _Raw(b"")


class _Part(msgspec.Struct):
    text: _Raw = _Raw(b"")


_decode = msgspec.json.Decoder(_Body).decode
_decode_messages = msgspec.json.Decoder(list[_Message]).decode
_decode_raws = msgspec.json.Decoder(list[_Raw]).decode
_decode_part = msgspec.json.Decoder(_Part).decode
_decode_object = msgspec.json.Decoder(dict[str, _Raw]).decode


class PromptText(NamedTuple):
    text: bytes
    #: bytes up to the end of the first message that is no template; the first HOME_TOKENS of a prompt without messages
    opening: int


def prompt_text(body: bytes) -> PromptText | None:
    """None: there is no prompt in it that could be read."""
    try:
        fields = _decode(body)
        parts = [bytes(fields.cache_salt), bytes(fields.tools)]
        for template in (fields.system, fields.instructions):
            parts.append(without_nonces(_content(template)))
        messages = fields.messages if bytes(fields.messages) else fields.input
        if bytes(messages)[:1] == b"[":
            return _conversation(parts, _decode_messages(messages))
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return None
    prompt = bytes(fields.prompt) or bytes(messages)
    if not prompt or prompt == _NULL:
        return None
    # without its closing quote or bracket, so that a longer prompt begins with a shorter one
    parts.append(prompt[:-1])
    text = _END.join(parts)
    return PromptText(text, min(len(text), HOME_TOKENS * BYTES_PER_TOKEN))


def _conversation(parts: list[bytes], messages: list[_Message]) -> PromptText | None:
    opening = 0
    for message in messages:
        role, content = bytes(message.role), _content(message.content)
        template = role in _SYSTEM
        parts += (role, without_nonces(content) if template else content)
        parts += filter(None, map(bytes, (message.tool_calls, message.arguments, message.output)))
        if not opening and not template:
            opening = len(_END.join(parts))
    text = _END.join(parts)
    return PromptText(text, opening or len(text)) if messages else None


def _content(raw: _Raw) -> bytes:
    """A text, or the parts of a list one after the other. Marks for a prompt cache are no part of the prompt:
    Anthropic's clients set them on the newest messages, so they move from turn to turn."""
    content = bytes(raw)
    if content[:1] != b"[":
        return content
    return _END.join(map(_part, _decode_raws(content)))


def _part(raw: _Raw) -> bytes:
    part = bytes(raw)
    if part[:1] != b"{":
        return part
    text = bytes(_decode_part(part).text)
    if text:
        return text
    fields = _decode_object(part)
    return _END.join(key.encode() + bytes(value) for key, value in fields.items() if key != "cache_control")


def prefix_of(model: str, body: bytes, tokens: int, session: bytes = b"") -> Prefix | None:
    """What routing is told of a prompt of `tokens` tokens (estimated). `session`: its conversation's name, if known.

    None: nothing is to be told. The prompt's text is in none of it.
    """
    found = prompt_text(body)
    named = key_of(session, model.encode()[:64]) if session else 0
    if found is None:
        return Prefix(tokens, (), 0, named) if named else None
    text, opening = found
    # pictures count for less than their bytes: no more of the text is told apart than there are tokens
    keys = text_keys(text[: tokens * BYTES_PER_TOKEN], BYTES_PER_TOKEN)
    return Prefix(tokens, keys, key_of(text[:opening], model.encode()[:64]), named)
