"""Request bodies: what is read of them, and what vLLM would refuse."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from kilocard.emulator.failure import Refused

#: Token count of a text, without a tokenizer: bytes of UTF-8 by 4, upwards.
BYTES_PER_TOKEN = 4
#: An image or another part that is no text.
PART_TOKENS = 256
#: vLLM's (and OpenAI's) default of /v1/completions
COMPLETION_DEFAULT = 16

T = TypeVar("T", bound=msgspec.Struct)

#: a text, token ids, or a list of either
Prompt = str | list[int | str | list[int]]


class Part(msgspec.Struct):
    text: str | None = None


class Message(msgspec.Struct):
    role: str
    content: str | list[Part] | None = None


class StreamOptions(msgspec.Struct):
    include_usage: bool | None = None


class Sampling(msgspec.Struct):
    """Fields that both generation routes share."""

    model: str | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    ignore_eos: bool = False
    n: int | None = None


class Chat(Sampling):
    messages: list[Message] = msgspec.field(default_factory=list)


class Completion(Sampling):
    prompt: Prompt = ""


class Embedding(msgspec.Struct):
    input: Prompt
    model: str | None = None
    encoding_format: str = "float"
    dimensions: int | None = None


class Tokenize(msgspec.Struct):
    model: str | None = None
    prompt: str | None = None
    messages: list[Message] | None = None


class Detokenize(msgspec.Struct):
    tokens: list[int]
    model: str | None = None


def read(body: bytes, kind: type[T]) -> T:
    """Raises Refused (400) for what is no JSON or has the wrong types."""
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.ValidationError as error:
        raise Refused(400, f"1 validation error: {error}") from None
    except msgspec.DecodeError as error:
        raise Refused(400, f"1 validation error: JSON decode error: {error}") from None


def tokens_of(text: str) -> int:
    return -(-len(text.encode("utf-8", "replace")) // BYTES_PER_TOKEN)


def chat_text(messages: list[Message]) -> tuple[str, int]:
    """(text of all messages, tokens of parts that are no text)."""
    texts: list[str] = []
    other = 0
    for message in messages:
        if isinstance(message.content, str):
            texts.append(message.content)
        for part in message.content if isinstance(message.content, list) else ():
            if part.text is None:
                other += PART_TOKENS
            else:
                texts.append(part.text)
    return "\n".join(texts), other


def chat_tokens(asked: Chat) -> int:
    """Prompt tokens of a chat: 1 at least. Refuses an empty list of messages."""
    if not asked.messages:
        raise Refused(400, "messages: at least one message is needed", "messages")
    text, other = chat_text(asked.messages)
    return max(1, tokens_of(text) + other)


def prompt_tokens(prompt: Prompt) -> int:
    """Prompt tokens of a completion. One prompt a request: this engine gives one choice."""
    if isinstance(prompt, str):
        return max(1, tokens_of(prompt))
    if not prompt:
        raise Refused(400, "prompt: it must not be empty", "prompt")
    if all(isinstance(each, int) for each in prompt):
        return len(prompt)
    first = prompt[0]
    if len(prompt) > 1 or isinstance(first, int):
        raise Refused(400, "prompt: this emulated engine takes one prompt a request", "prompt")
    return max(1, tokens_of(first) if isinstance(first, str) else len(first))


def output_tokens(asked: Sampling, prompt: int, context: int, default: int | None) -> int | None:
    """Tokens to generate; None when the request leaves it open. Refuses what does not fit, with vLLM's words."""
    if asked.n not in (None, 1):
        raise Refused(400, "n: this emulated engine gives one choice; send the request n times", "n")
    if asked.stream_options is not None and not asked.stream:
        raise Refused(400, "Stream options can only be defined when `stream=True`.", "stream_options")
    if prompt >= context:
        raise Refused(
            400,
            f"This model's maximum context length is {context} tokens. However, your request has {prompt} input "
            "tokens. Please reduce the length of the input messages.",
            "input_tokens",
        )
    wanted = asked.max_completion_tokens if asked.max_completion_tokens is not None else asked.max_tokens
    if wanted is None:
        return None if default is None else min(default, context - prompt)
    if wanted < 1:
        raise Refused(400, f"max_tokens must be at least 1, got {wanted}.", "max_tokens")
    if prompt + wanted > context:
        raise Refused(
            400,
            f"'max_tokens' or 'max_completion_tokens' is too large: {wanted}. This model's maximum context length is "
            f"{context} tokens and your request has {prompt} input tokens ({wanted} > {context} - {prompt}).",
            "max_tokens",
        )
    return wanted
