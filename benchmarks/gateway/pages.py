"""The canned bytes of the stub: a completion, one streamed event, the model list and a metrics page.

Shapes follow vLLM's answers; the metrics page has vLLM's metric names with enough histograms to weigh ~50 KB, which
is what a real page weighs.
"""

from __future__ import annotations

import json

MODEL = "m"


def completion() -> bytes:
    """A whole HTTP answer to a non-streaming request, body ~500 B."""
    body = json.dumps(
        {
            "id": "chatcmpl-2f4d1d0c9be64d0e8a1b5c7d9e0f1a2b",
            "object": "chat.completion",
            "created": 1767225600,
            "model": MODEL,
            "choices": [
                {
                    "index": 0,
                    "message": {"role": "assistant", "content": "A thousand cards answer as one. " * 6},
                    "logprobs": None,
                    "finish_reason": "stop",
                    "stop_reason": None,
                }
            ],
            "usage": {"prompt_tokens": 230, "total_tokens": 270, "completion_tokens": 40},
        },
        separators=(",", ":"),
    ).encode()
    return (
        b"HTTP/1.1 200 OK\r\ndate: Thu, 01 Jan 2026 00:00:00 GMT\r\nserver: uvicorn\r\n"
        b"content-length: %d\r\ncontent-type: application/json\r\n\r\n%s" % (len(body), body)
    )


def event(size: int = 250) -> tuple[bytes, bytes]:
    """What stands before and after the 20 digits of one streamed event of `size` bytes in all."""
    before = b'data: {"id":"chatcmpl-2f4d1d0c9be64d0e8a1b5c7d9e0f1a2b","object":"chat.completion.chunk",'
    before += b'"created":1767225600,"model":"m","choices":[{"index":0,"delta":{"content":"~'
    after = b'"},"logprobs":null,"finish_reason":null}]}\n\n'
    pad = size - len(before) - 20 - len(after)
    return before, b" " * pad + after


def request_body(*, stream: bool, tokens: int, size: int = 1024) -> bytes:
    """A chat request of `size` bytes."""
    body: dict[str, object] = {"model": MODEL, "messages": [{"role": "user", "content": ""}], "max_tokens": tokens}
    if stream:
        body["stream"] = True
    text = ("Plan a cluster of a thousand cards and say why. " * (size // 40))[: size - len(json.dumps(body))]
    body["messages"] = [{"role": "user", "content": text}]
    return json.dumps(body).encode()


def models() -> bytes:
    return json.dumps(
        {"object": "list", "data": [{"id": MODEL, "object": "model", "owned_by": "vllm", "max_model_len": 32768}]}
    ).encode()


_LABELS = 'engine="0",model_name="m"'
_BUCKETS = (
    *("0.001", "0.005", "0.01", "0.02", "0.04", "0.06", "0.08", "0.1", "0.25", "0.5", "0.75", "1.0", "2.5", "5.0"),
    *("7.5", "10.0", "20.0", "40.0", "80.0", "160.0", "640.0", "2560.0", "+Inf"),
)
_HISTOGRAMS = (
    "time_to_first_token_seconds",
    "inter_token_latency_seconds",
    "request_time_per_output_token_seconds",
    "e2e_request_latency_seconds",
    "request_queue_time_seconds",
    "request_inference_time_seconds",
    "request_prefill_time_seconds",
    "request_decode_time_seconds",
    "request_prompt_tokens",
    "request_generation_tokens",
    "iteration_tokens_total",
    "request_max_num_generation_tokens",
    "request_params_n",
    "request_params_max_tokens",
    "request_prefill_kv_computed_tokens",
    "kv_block_lifetime_seconds",
    "kv_block_idle_before_evict_seconds",
    "kv_block_reuse_gap_seconds",
)


def _template() -> tuple[bytes, bytes]:
    gauges = (
        f"# HELP vllm:num_requests_running Number of requests in model execution batches.\n"
        f"# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running{{{_LABELS}}} %d.0\n"
        f"# HELP vllm:num_requests_waiting Number of requests waiting to be processed.\n"
        f"# TYPE vllm:num_requests_waiting gauge\nvllm:num_requests_waiting{{{_LABELS}}} %d.0\n"
        f"# HELP vllm:kv_cache_usage_perc KV-cache usage. 1 means 100 percent usage.\n"
        f"# TYPE vllm:kv_cache_usage_perc gauge\nvllm:kv_cache_usage_perc{{{_LABELS}}} 0.25\n"
        f"# HELP vllm:num_preemptions_total Cumulative number of preemption from the engine.\n"
        f"# TYPE vllm:num_preemptions_total counter\nvllm:num_preemptions_total{{{_LABELS}}} 0.0\n"
        f"# HELP vllm:prompt_tokens_total Number of prefill tokens processed.\n"
        f"# TYPE vllm:prompt_tokens_total counter\nvllm:prompt_tokens_total{{{_LABELS}}} 1.0e+06\n"
        f"# HELP vllm:generation_tokens_total Number of generation tokens processed.\n"
        f"# TYPE vllm:generation_tokens_total counter\nvllm:generation_tokens_total{{{_LABELS}}} %d.0\n"
        f"# HELP vllm:cache_config_info Information of the LLMEngine CacheConfig\n"
        f"# TYPE vllm:cache_config_info gauge\n"
        f'vllm:cache_config_info{{block_size="16",cache_dtype="auto",engine="0",num_gpu_blocks="27000"}} 1.0\n'
    )
    lines = []
    for name in _HISTOGRAMS:
        lines.append(f"# HELP vllm:{name} Histogram of {name.replace('_', ' ')}.\n# TYPE vllm:{name} histogram\n")
        lines += [f'vllm:{name}_bucket{{{_LABELS[:10]},le="{le}",{_LABELS[11:]}}} 1234.0\n' for le in _BUCKETS]
        lines.append(f"vllm:{name}_count{{{_LABELS}}} 1234.0\nvllm:{name}_sum{{{_LABELS}}} 5678.9\n")
    http = [
        f'http_request_duration_seconds_bucket{{handler="/v1/{path}",le="{le}",method="POST"}} 99.0\n'
        for path in ("chat/completions", "completions", "responses", "tokenize")
        for le in _BUCKETS
    ]
    # vLLM puts Python's own process metrics first, its gauges next, histograms after
    first = "".join(f'# TYPE python_gc_{i} counter\npython_gc_{i}{{generation="{i % 3}"}} {i}.0\n' for i in range(24))
    return (first + gauges).encode(), ("".join(lines) + "".join(http)).encode()


_GAUGES, _REST = _template()


def metrics_page(running: int, waiting: int, generated: int) -> bytes:
    return _GAUGES % (running, waiting, generated) + _REST
