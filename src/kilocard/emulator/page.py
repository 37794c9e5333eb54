"""The /metrics page: names, labels, order and words of vLLM 0.32.0's own page."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kilocard.emulator.histogram import Histogram

if TYPE_CHECKING:
    from kilocard.emulator.replica import Replica


class _Page:
    def __init__(self, model: str, created: float) -> None:
        escaped = model.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
        self.labels = f'engine="0",model_name="{escaped}"'
        self.model = escaped
        self.created = created
        self.lines: list[str] = []

    def head(self, name: str, kind: str, text: str) -> None:
        self.lines.append(f"# HELP {name} {text}\n# TYPE {name} {kind}")

    def gauge(self, name: str, text: str, value: float) -> None:
        self.head(name, "gauge", text)
        self.lines.append(f"{name}{{{self.labels}}} {float(value)!r}")

    def counter(self, name: str, text: str, value: float) -> None:
        """`name` ends with _total."""
        self.head(name, "counter", text)
        self.lines.append(f"{name}{{{self.labels}}} {float(value)!r}")
        self._created(name.removesuffix("_total"), text, self.labels)

    def by_label(self, name: str, kind: str, text: str, label: str, values: dict[str, float]) -> None:
        self.head(name, kind, text)
        for key, value in values.items():
            self.lines.append(f'{name}{{engine="0",model_name="{self.model}",{label}="{key}"}} {float(value)!r}')

    def histogram(self, name: str, text: str, data: Histogram) -> None:
        self.head(name, "histogram", text)
        for le, count in data.buckets():
            self.lines.append(f'{name}_bucket{{engine="0",le="{le}",model_name="{self.model}"}} {float(count)!r}')
        self.lines.append(f"{name}_count{{{self.labels}}} {float(data.count)!r}")
        self.lines.append(f"{name}_sum{{{self.labels}}} {data.sum!r}")
        self._created(name, text, self.labels)

    def _created(self, name: str, text: str, labels: str) -> None:
        self.head(f"{name}_created", "gauge", text)
        self.lines.append(f"{name}_created{{{labels}}} {self.created!r}")

    def text(self) -> str:
        return "\n".join(self.lines) + "\n"


def metrics_page(replica: Replica) -> bytes:
    engine, observed = replica.engine, replica.observed
    counters = engine.counters
    page = _Page(replica.settings.models[0], float(replica.created))
    page.gauge("vllm:num_requests_running", "Number of requests in model execution batches.", engine.running)
    page.gauge("vllm:num_requests_waiting", "Number of requests waiting to be processed.", engine.waiting)
    page.by_label(
        "vllm:num_requests_waiting_by_reason",
        "gauge",
        "Number of waiting requests by reason. Sum of all reasons equals vllm:num_requests_waiting.",
        "reason",
        {"capacity": engine.waiting, "deferred": 0},
    )
    page.by_label(
        "vllm:engine_sleep_state",
        "gauge",
        "Engine sleep state; awake = 0 means engine is sleeping; awake = 1 means engine is awake.",
        "sleep_state",
        {"awake": 1, "weights_offloaded": 0, "discard_all": 0},
    )
    page.gauge("vllm:kv_cache_usage_perc", "KV-cache usage. 1 means 100 percent usage.", engine.kv_usage)
    page.counter(
        "vllm:prefix_cache_queries_total",
        "Prefix cache queries, in terms of number of queried tokens.",
        counters.prefix_queries,
    )
    page.counter(
        "vllm:prefix_cache_hits_total",
        "Prefix cache hits, in terms of number of cached tokens.",
        counters.prefix_hits,
    )
    page.counter(
        "vllm:num_preemptions_total",
        "Cumulative number of preemption from the engine.",
        counters.preemptions_reported,
    )
    page.counter("vllm:prompt_tokens_total", "Number of prefill tokens processed.", counters.prompt_tokens)
    page.counter(
        "vllm:prompt_tokens_cached_total",
        "Number of cached prompt tokens (local + external).",
        counters.prefix_hits,
    )
    page.counter("vllm:generation_tokens_total", "Number of generation tokens processed.", counters.generation_tokens)
    page.by_label(
        "vllm:request_success_total",
        "counter",
        "Count of successfully processed requests.",
        "finished_reason",
        {reason: observed.finished[reason] for reason in ("stop", "length", "abort", "error", "repetition")},
    )
    for name, text, data in (
        ("request_prompt_tokens", "Number of prefill tokens processed.", observed.prompt_tokens),
        ("request_generation_tokens", "Number of generation tokens processed.", observed.generation_tokens),
        ("iteration_tokens_total", "Histogram of number of tokens per engine_step.", observed.step_tokens),
        ("request_params_max_tokens", "Histogram of the max_tokens request parameter.", observed.max_tokens),
        ("time_to_first_token_seconds", "Histogram of time to first token in seconds.", observed.ttft),
        ("inter_token_latency_seconds", "Histogram of inter-token latency in seconds.", observed.itl),
        ("e2e_request_latency_seconds", "Histogram of e2e request latency in seconds.", observed.e2e),
        ("request_queue_time_seconds", "Histogram of time spent in WAITING phase for request.", observed.queue),
        ("request_inference_time_seconds", "Histogram of time spent in RUNNING phase for request.", observed.inference),
        ("request_prefill_time_seconds", "Histogram of time spent in PREFILL phase for request.", observed.prefill),
        ("request_decode_time_seconds", "Histogram of time spent in DECODE phase for request.", observed.decode),
    ):
        page.histogram(f"vllm:{name}", text, data)
    page.head("vllm:cache_config_info", "gauge", "Information of the LLMEngine CacheConfig")
    block = engine.profile.block_size
    # The fields of the real line that anybody reads; like it, without model_name.
    page.lines.append(
        f'vllm:cache_config_info{{block_size="{block}",cache_dtype="auto",enable_prefix_caching="False",engine="0",'
        f'gpu_memory_utilization="0.9",kv_cache_size_tokens="{engine.kv_tokens // block * block}",'
        f'num_cpu_blocks="None",num_gpu_blocks="{engine.kv_tokens // block}",num_gpu_blocks_override="None"}} 1.0'
    )
    page.head("http_requests_total", "counter", "Total number of requests by method, status and handler.")
    for (handler, status), count in sorted(observed.http.items()):
        page.lines.append(
            f'http_requests_total{{handler="{handler}",method="POST",status="{status}"}} {float(count)!r}'
        )
    return padded(page.text(), replica.settings.metrics_bytes).encode()


def padded(page: str, size: int) -> str:
    """At least `size` bytes, with lines that mean nothing, half before and half behind what counts: a reader
    that searches has as far to go as on a real page."""
    missing = size - len(page)
    if missing <= 0:
        return page
    before = [
        "# HELP kilocard_emulated_padding Lines that make the page as long as a real one.",
        "# TYPE kilocard_emulated_padding untyped",
    ]
    behind: list[str] = []
    missing -= sum(len(line) + 1 for line in before)
    number = 0
    while missing > 0:
        side, lines = ("before", before) if number % 2 else ("behind", behind)
        line = (
            f'kilocard_emulated_padding{{engine="0",handler="/v1/chat/completions",le="{number}.0",side="{side}"}} 0.0'
        )
        lines.append(line)
        missing -= len(line) + 1
        number += 1
    return "\n".join(before) + "\n" + page + "".join(line + "\n" for line in behind)
