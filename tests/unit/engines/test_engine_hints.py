"""Real log lines in plain words. Sources: vllm#21728, #30515, #31602, #10517, #7514, kvcached#29, pytorch#175666."""

from __future__ import annotations

import pytest

from kilocard.engines.registry import engine

VLLM = [
    (
        "ValueError: Free memory on device (59.32/79.15 GiB) on startup is less than desired GPU memory utilization "
        "(0.9, 71.24 GiB). Decrease GPU memory utilization or reduce GPU memory used by other processes.",
        "not enough free GPU memory: 59.32 of 79.15 GiB are free, 71.24 GiB are wanted (gpu-memory-utilization 0.9)",
    ),
    (
        "ValueError: Free memory on device cuda:0 (19.77/22.05 GiB) on startup is less than desired GPU memory "
        "utilization (0.9, 19.84 GiB). Decrease GPU memory utilization or reduce GPU memory used by other processes.",
        "not enough free GPU memory: 19.77 of 22.05 GiB are free, 19.84 GiB are wanted (gpu-memory-utilization 0.9)",
    ),
    (
        "The model's max seq len (29000) is larger than the maximum number of tokens that can be stored in KV cache "
        "(23648). Try increasing `gpu_memory_utilization` or decreasing `max_model_len` when initializing the engine.",
        "KV cache too small: max-model-len is 29000, but only 23648 tokens fit",
    ),
    ("INFO 08-14 10:01:27 model_runner.py:692] Loading model weights took 13.5083 GB", "weights loaded 13.5083 GB"),
    ("Loading safetensors checkpoint shards:   0% Completed | 0/4\r"
     "Loading safetensors checkpoint shards:  75% Completed", "loading weights: 75%"),
    ("INFO 08-14 10:01:31 gpu_executor.py:102] # GPU blocks: 215, # CPU blocks: 2048", "KV cache: 215 blocks"),
    ("ERROR:    [Errno 98] error while attempting to bind on address ('0.0.0.0', 8000): address already in use",
     "its port is in use by another program"),
    ("(VllmWorker rank=0 pid=2120280) INFO 07-28 23:02:26 [gpu_model_runner.py:1892] Model loading took 1.1201 GiB and "
     "0.494173 seconds", "weights loaded 1.1201 GiB"),
    ("INFO 07-28 23:02:27 [kv_cache_utils.py:833] GPU KV cache size: 176,240 tokens", "KV cache: 176,240 tokens"),
    ("(EngineCore_DP0 pid=218) 2026-01-01 16:10:39,331 - INFO - autotuner.py:256 - flashinfer.jit: [Autotuner]: "
     "Autotuning process starts ...", "tuning kernels"),
    ("(EngineCore_DP0 pid=218) INFO 01-01 16:10:47 [gpu_model_runner.py:3480] Graph capturing finished in 8 secs, took "
     "0.54 GiB", "CUDA graphs captured"),
    ("(EngineCore_DP0 pid=218) INFO 01-01 16:10:47 [core.py:210] init engine (profile, create kv cache, warmup model) "
     "took 31.64 seconds", "engine ready after 31.64 s"),
    ("INFO 12-20 20:25:46 worker.py:241] Memory profiling takes 19.77 seconds", "measuring memory"),
    ("vllm: error: unrecognized arguments: --max-modle-len 5",
     "the engine does not know these args: --max-modle-len 5"),
    ("(APIServer pid=1) INFO 03-11 06:16:52 [loggers.py:257] Engine 000: Avg prompt throughput: 16.5 tokens/s, "
     "Running: 51 reqs, Waiting: 117 reqs, GPU KV cache usage: 100.0%", None),
]  # fmt: skip
LLAMACPP = [
    ("llama_model_load: error loading model: failed to open ./m.gguf: No such file or directory",
     "the model file can't be loaded: failed to open ./m.gguf: No such file or directory"),
    ("common_init_from_params: warming up the model with an empty run - please wait ... (--no-warmup to disable)",
     "warming up"),
    ("srv    load_model: initializing slots, n_slots = 4", "4 slots"),
    ("srv  llama_server: model loaded", "weights loaded"),
    ("0.01.010.236 I srv  llama_server: server is listening on http://127.0.0.1:18099", "server is up"),
    ("slot print_timing: id  0 | task 0 |", None),
]  # fmt: skip
SGLANG = [
    ("[2026-03-11 13:53:23 TP0] Load weight begin. avail mem=29.37 GB", "loading weights"),
    ("[2026-03-11 13:53:23 TP0] KV Cache is allocated. #tokens: 383872, KV size: 19.36 GB", "KV cache: 383872 tokens"),
    ("[2026-03-11 13:53:32 TP0] Capture npu graph end. Time elapsed: 8.04 s.", "CUDA graphs captured"),
    ("[2026-03-11 13:53:33] The server is fired up and ready to roll!", "ready"),
    ("RuntimeError: Not enough memory. Please try to increase --mem-fraction-static. Current value: "
     "mem_fraction_static=0.8",
     "not enough GPU memory for weights and KV cache: raise mem-fraction-static or use more GPUs"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "line", "words"),
    [(name, *row) for name, rows in (("vllm", VLLM), ("llamacpp", LLAMACPP), ("sglang", SGLANG)) for row in rows],
)
def test_log_lines_in_plain_words(name: str, line: str, words: str | None) -> None:
    assert engine(name).loading_hint(line) == words
    assert engine(name).loading_hint(line + "\n") == words
