"""The streams of the engines, each with its own ways, give the same record: two tokens, the first one thought."""

from __future__ import annotations

import pytest

from kilocard.bench.answer import Answer
from kilocard.bench.record import RequestRecord

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: %b\r\ntransfer-encoding: chunked\r\n\r\n"
EVENT_STREAM = b"text/event-stream; charset=utf-8"

# usage is null until the last event, which has no choices
VLLM = b"""\
data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":\
{"role":"assistant","content":"","reasoning":null},"logprobs":null,"finish_reason":null}],"prompt_token_ids":null}

data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":\
{"reasoning":"Hm"},"logprobs":null,"finish_reason":null,"token_ids":null}]}

data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":\
{"content":"Yes"},"logprobs":null,"finish_reason":"length","stop_reason":null,"token_ids":null}]}

data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"m","choices":[],"usage":\
{"prompt_tokens":9,"total_tokens":11,"completion_tokens":2,"prompt_tokens_details":{"cached_tokens":4}}}

data: [DONE]

"""

# every event carries usage (stream_options.continuous_usage_stats), and keys come in another order
USAGE_IN_EACH = b"""\
data: {"usage":{"prompt_tokens":9,"completion_tokens":0},"choices":[{"delta":{"role":"assistant"},"index":0}]}

data: {"usage":{"prompt_tokens":9,"completion_tokens":1},"choices":[{"delta":{"reasoning_content":"Hm"},"index":0}]}

data: {"usage":{"prompt_tokens":9,"completion_tokens":2,"prompt_tokens_details":{"cached_tokens":4}},"choices":\
[{"delta":{"content":"Yes"},"index":0,"finish_reason":"length"}]}

data: [DONE]

"""

# content is null at the start, reasoning_content is null beside it, usage stands beside an empty list
SGLANG = b"""\
data: {"id":"1","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"role":\
"assistant","content":"","reasoning_content":null,"tool_calls":null},"logprobs":null,"finish_reason":null,\
"matched_stop":null}],"usage":null}

data: {"id":"1","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"role":null,\
"content":null,"reasoning_content":"Hm","tool_calls":null},"finish_reason":null}],"usage":null}

data: {"id":"1","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"role":null,\
"content":"Yes","reasoning_content":null,"tool_calls":null},"finish_reason":null}],"usage":null}

data: {"id":"1","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"content":\
null},"finish_reason":"length","matched_stop":null}],"usage":null}

data: {"id":"1","object":"chat.completion.chunk","created":1,"model":"m","choices":[],"usage":{"prompt_tokens":9,\
"total_tokens":11,"completion_tokens":2,"prompt_tokens_details":{"cached_tokens":4},"reasoning_tokens":1}}

data: [DONE]

"""

# timings beside the usage; the last delta is empty
LLAMACPP = b"""\
data: {"choices":[{"finish_reason":null,"index":0,"delta":{"role":"assistant","content":null}}],"created":1,"id":"c",\
"model":"m","system_fingerprint":"b1","object":"chat.completion.chunk"}

data: {"choices":[{"finish_reason":null,"index":0,"delta":{"reasoning_content":"Hm"}}],"created":1,"id":"c"}

data: {"choices":[{"finish_reason":null,"index":0,"delta":{"content":"Yes"}}],"created":1,"id":"c"}

data: {"choices":[{"finish_reason":"length","index":0,"delta":{}}],"created":1,"id":"c"}

data: {"choices":[],"created":1,"id":"c","usage":{"completion_tokens":2,"prompt_tokens":9,"total_tokens":11,\
"prompt_tokens_details":{"cached_tokens":4}},"timings":{"cache_n":4,"prompt_n":5,"predicted_n":2}}

data: [DONE]

"""

# no space after the colon, comments between events, CRLF, no [DONE]: a finish reason and a whole message are an end
THROUGH_A_PROXY = b"""\
: ping

event: message
data:{"choices":[{"index":0,"delta":{"role":"assistant","reasoning":"Hm"}}]}

: ping

id: 7
data:{"choices":[{"index":0,"delta":{"content":"Yes"},"finish_reason":"length"}],"usage":{"prompt_tokens":9,\
"completion_tokens":2,"prompt_tokens_details":{"cached_tokens":4}}}

""".replace(b"\n", b"\r\n")


@pytest.mark.parametrize(
    "stream",
    [VLLM, USAGE_IN_EACH, SGLANG, LLAMACPP, THROUGH_A_PROXY],
    ids=["vllm", "each", "sglang", "llamacpp", "proxy"],
)
@pytest.mark.parametrize("content_type", [EVENT_STREAM, b"text/plain"])
def test_every_engines_stream_is_read_alike(stream: bytes, content_type: bytes) -> None:
    answer = Answer(RequestRecord(0.0, 0.0, 9, 2))
    answer.feed(HEAD % content_type, 1.0)
    answer.feed(b"%x\r\n%b\r\n0\r\n\r\n" % (len(stream), stream), 2.0)
    record = answer.record
    assert record.error is None
    assert (record.input_tokens, record.output_tokens, record.cached_tokens) == (9, 2, 4)
    assert (record.first_kind, record.finish_reason, len(record.gaps_s)) == ("reasoning", "length", 1)
    assert record.last_share == 3 / 5
    assert answer.keep_alive
