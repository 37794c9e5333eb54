"""What an event or a whole answer means: always something, never an exception; token counts are never negative."""

from __future__ import annotations

from kilocard.wire.events import Usage, body_usage, payload, read

SEEDS = [
    b'data: {"choices":[{"delta":{"content":"a"},"finish_reason":null}]}\n\n',
    b'data: {"choices":[],"usage":{"prompt_tokens":1,"completion_tokens":2,'
    b'"prompt_tokens_details":{"cached_tokens":1}}}\n\n',
    b'data: {"type":"message_delta","usage":{"output_tokens":5},"message":{"usage":{"input_tokens":3}}}\n\n',
    b'data: {"type":"response.completed","response":{"usage":{"input_tokens":3,"output_tokens":4}}}\n\n',
    b'{"usage":{"prompt_tokens":1,"completion_tokens":2}}',
    b'data: {"error":{"code":400}}\n\n',
]


def check(data: bytes) -> None:
    text = payload(data)
    for usage in (read(text if text is not None else data).usage, body_usage(data)):
        if usage is not None:
            assert all(count is None or (type(count) is int and 0 <= count <= 3 * 10**12) for count in usage), usage
            assert usage.merged(Usage()) == usage
