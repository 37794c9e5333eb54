"""llama.cpp's own HTTP server out of the xllamacpp wheel, in a process of its own, with llama-server's flags.

    python -m kilocard.backends.llamacpp_server -m FILE.gguf --port 8080 -np 2 -c 8192 -a my-model --metrics

For machines without the llama-server binary (`pip install 'kilocard[local]'`). Like the binary: `-c` is the context
of all slots together, so each of `-np` slots has 1/np of it; SIGTERM ends it at once with code 0; it answers 503
while it loads. Unlike the binary: without `-c` each slot gets 4096 tokens (llama.cpp itself never gives a slot more
than the model was trained with); prompts kept between requests take up to 512 MiB, not 8 GiB; flags that this file
does not know are errors.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
from collections.abc import Sequence
from types import FrameType
from typing import Any, NoReturn

#: tokens for each slot where -c is not given: half of what the default model was trained with, ample for a chat
CONTEXT_PER_SLOT = 4096
#: MiB of memory for prompts kept between requests. The binary's 8192 is for one server on one machine; several
#: replicas on a laptop would fill it
CACHE_RAM = 512
MISSING = "llama.cpp is not installed: run `pip install 'kilocard[local]'`, or put the llama-server binary on PATH"


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="kilocard.backends.llamacpp_server",
        usage="python -m %(prog)s -m FILE.gguf [flags of llama-server: --help lists those that are known here]",
        allow_abbrev=False,
        description="llama.cpp's server from its wheel",
    )
    add = made.add_argument
    add("-m", "--model", help="GGUF file (default: the model of `kilocard model fetch`)")
    add("-a", "--alias", help="name or names (a,b) that the API shows")
    add("--host", default="127.0.0.1")
    add("--port", type=int, default=8080)
    add("-np", "--parallel", type=int, default=1, help="slots: requests that run at once")
    add("-c", "--ctx-size", type=int, help=f"tokens of all slots together (default: {CONTEXT_PER_SLOT} for each slot)")
    add("-n", "--predict", "--n-predict", type=int, help="most tokens of an answer")
    add("-b", "--batch-size", type=int)
    add("-ub", "--ubatch-size", type=int)
    add("-t", "--threads", type=int, help="CPU threads for generation")
    add("-tb", "--threads-batch", type=int, help="CPU threads for prompts")
    add("--threads-http", type=int)
    add("-ngl", "--gpu-layers", "--n-gpu-layers", type=int)
    add("-mg", "--main-gpu", type=int)
    add("-to", "--timeout", type=int, help="seconds for reading and writing")
    add("--cache-ram", type=int, default=CACHE_RAM, help="MiB of memory for prompts kept between requests")
    add("--cache-reuse", type=int)
    add("-sps", "--slot-prompt-similarity", type=float)
    add("--chat-template")
    add("--api-key")
    add("--api-prefix")
    add("-lv", "--verbosity", "--log-verbosity", type=int)
    add("--metrics", action="store_true")
    add("--props", action="store_true")
    add("--embedding", "--embeddings", action="store_true")
    for name, usual in (
        ("cont-batching", True), ("kv-unified", False), ("warmup", True), ("slots", True), ("jinja", True),
        ("cache-prompt", True), ("context-shift", False), ("ui", False), ("webui", False),
    ):  # fmt: skip
        add(f"--{name}", action=argparse.BooleanOptionalAction, default=usual)
    return made


#: flag: the attribute of CommonParams that it sets when it is given
PLAIN = {
    "predict": "n_predict",
    "batch_size": "n_batch",
    "ubatch_size": "n_ubatch",
    "threads_http": "n_threads_http",
    "gpu_layers": "n_gpu_layers",
    "main_gpu": "main_gpu",
    "cache_ram": "cache_ram_mib",
    "cache_reuse": "n_cache_reuse",
    "slot_prompt_similarity": "slot_prompt_similarity",
    "chat_template": "chat_template",
    "api_prefix": "api_prefix",
    "verbosity": "verbosity",
    "metrics": "endpoint_metrics",
    "props": "endpoint_props",
    "embedding": "embedding",
    "cont_batching": "cont_batching",
    "kv_unified": "kv_unified",
    "warmup": "warmup",
    "slots": "endpoint_slots",
    "jinja": "use_jinja",
    "cache_prompt": "cache_prompt",
    "context_shift": "ctx_shift",
}


def fill(params: Any, flags: argparse.Namespace) -> Any:
    """Set CommonParams as llama-server would."""
    params.model.path = flags.model
    params.hostnames = [flags.host]
    params.port = flags.port
    params.n_parallel = flags.parallel
    params.n_ctx = CONTEXT_PER_SLOT * flags.parallel if flags.ctx_size is None else flags.ctx_size
    params.ui = flags.ui or flags.webui
    if flags.alias:
        params.model_alias = {name.strip() for name in flags.alias.split(",")}
    if flags.api_key:
        params.api_keys = flags.api_key.split(",")
    if flags.timeout is not None:
        params.timeout_read = params.timeout_write = flags.timeout
    if flags.threads is not None:
        params.cpuparams.n_threads = flags.threads
    batch_threads = flags.threads if flags.threads_batch is None else flags.threads_batch
    if batch_threads is not None:
        params.cpuparams_batch.n_threads = batch_threads
    for flag, attribute in PLAIN.items():
        value = getattr(flags, flag)
        if value is not None:
            setattr(params, attribute, value)
    return params


def main(arguments: Sequence[str]) -> NoReturn:
    made = parser()
    flags, unknown = made.parse_known_args(arguments)
    if unknown:
        made.error(
            f"unknown: {' '.join(unknown)}. The wheel's server takes a part of llama-server's flags (see --help); "
            "for the others put the llama-server binary on PATH"
        )
    if flags.parallel < 1:
        made.error("--parallel must be at least 1")
    flags.model = flags.model or default_model()
    if not os.path.isfile(flags.model):
        made.exit(2, f"error: there is no file {flags.model}: give a GGUF file as `model`\n")
    try:
        import xllamacpp
    except ImportError as error:
        made.exit(2, f"error: {MISSING} ({error})\n")

    done = threading.Event()
    kept: list[object] = []

    def serve() -> None:
        try:
            kept.append(xllamacpp.Server(fill(xllamacpp.CommonParams(), flags)))
        except Exception as error:  # whatever it is, the process must end and say so
            print(f"llama.cpp did not start ({error}) See root cause above.", file=sys.stderr, flush=True)
            done.set()

    def leave(number: int, frame: FrameType | None) -> None:
        # not through the server's destructor: it waits for running answers
        os._exit(0)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, leave)
    # loading blocks for seconds in C++; in a thread, the main one stays free for signals
    threading.Thread(target=serve, daemon=True).start()
    done.wait()
    os._exit(1)


def default_model() -> str:
    from kilocard.backends import models

    if not models.is_fetched():
        sys.exit("error: no model: give one with -m, or run `kilocard model fetch`")
    return str(models.path())


if __name__ == "__main__":
    main(sys.argv[1:])
