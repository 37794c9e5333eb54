"""What an event or a whole answer means: always something, never an exception; token counts are never negative."""

from __future__ import annotations

from fuzz.words import spelled, spelling
from kilocard.wire.events import Usage, body_usage, payload, read

_WORDS = (
    b'"usage"',
    b'"prompt_tokens"',
    b'"completion_tokens"',
    b'"prompt_tokens_details"',
    b'"cached_tokens"',
    b'"choices"',
    b'"delta"',
    b'"content"',
    b'"role"',
    b'"text"',
    b'"finish_reason"',
    b'"error"',
    b'"code"',
    b'"type"',
    b'"response"',
    b'"message"',
    b'"message_start"',
    b'"input_tokens"',
    b'"output_tokens"',
    b'"cache_read_input_tokens"',
    b"data: ",
    b"\n",
    b"\r\n",
    b"[DONE]",
    b'"a"',
    b"7",
    b"12345678901234567890123",
)
SEEDS = [
    spelling(
        b'{"usage":{"prompt_tokens":1,"completion_tokens":7,"prompt_tokens_details":{"cached_tokens":1}}}', _WORDS
    ),
    spelling(b'data: {"choices":[{"delta":{"role":"a"}}],"usage":null}\n\n', _WORDS),
    spelling(b'data: {"type":"message_start","message":{"usage":{"input_tokens":7}}}\n\n', _WORDS),
    spelling(b'data: {"error":{"code":7},"response":{"usage":{"output_tokens":-2}}}\r\n\r\n', _WORDS),
    b'data: {"choices":[{"delta":{"content":"a"},"finish_reason":null}]}\n\n',
    b'data: {"choices":[],"usage":{"prompt_tokens":1,"completion_tokens":2,'
    b'"prompt_tokens_details":{"cached_tokens":1}}}\n\n',
    b'data: {"type":"message_delta","usage":{"output_tokens":5},"message":{"usage":{"input_tokens":3}}}\n\n',
    b'data: {"type":"response.completed","response":{"usage":{"input_tokens":3,"output_tokens":4}}}\n\n',
    b'{"usage":{"prompt_tokens":1,"completion_tokens":2}}',
    b'data: {"error":{"code":400}}\n\n',
]


def check(data: bytes) -> None:
    data = spelled(data, _WORDS)
    text = payload(data)
    for usage in (read(text if text is not None else data).usage, body_usage(data)):
        if usage is not None:
            assert all(count is None or (type(count) is int and 0 <= count <= 3 * 10**12) for count in usage), usage
            assert usage.merged(Usage()) == usage
