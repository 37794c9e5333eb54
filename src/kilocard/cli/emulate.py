"""`kilocard emulate`: emulated engines, for learning, tests and benchmarks without a GPU."""

from __future__ import annotations

from typing import Annotated

import typer

from kilocard.cli.profile_file import read_profile
from kilocard.cli.running import raise_file_limit
from kilocard.emulator.serve import serve
from kilocard.emulator.settings import DEFAULT_MODEL, Settings
from kilocard.net.loop import run
from kilocard.perf.builtin import BUILTIN, SMALL_FAST


def emulate(
    port: Annotated[int, typer.Option(help="First port; further engines take the ones after it. 0: any free.")] = 8100,
    count: Annotated[int, typer.Option(help="How many engines. Each has its own port, queue and KV cache.")] = 1,
    profile: Annotated[
        str,
        typer.Option(
            help=f"How fast and how large: {', '.join(BUILTIN)}, or a YAML file with a profile (docs/emulator.md)."
        ),
    ] = SMALL_FAST.name,
    model: Annotated[
        list[str] | None, typer.Option(help=f"Name to serve; may be repeated. Default: {DEFAULT_MODEL}.")
    ] = None,
    max_num_seqs: Annotated[
        int | None,
        typer.Option(
            help="Requests that run at once; more of them wait. Too low wastes the GPU, too high runs out of KV cache "
            "and preempts. Default: the profile's."
        ),
    ] = None,
    kv_tokens: Annotated[
        int | None,
        typer.Option(
            help="KV cache in tokens: what really bounds concurrency. Try 4000 and long answers to see preemption. "
            "Default: the profile's."
        ),
    ] = None,
    speed: Annotated[float, typer.Option(help="2 is twice as fast as the profile, 0.5 half as fast.")] = 1.0,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    max_model_len: Annotated[
        int | None,
        typer.Option(help="Prompt and answer tokens of one request; longer ones get 400. Default: the profile's."),
    ] = None,
    max_num_batched_tokens: Annotated[
        int | None,
        typer.Option(help="Tokens of one step. Long prompts are prefilled in such chunks. Default: the profile's."),
    ] = None,
    seed: Annotated[int, typer.Option(help="For filler text and for which requests a fault hits.")] = 0,
    metrics_bytes: Annotated[
        int, typer.Option(help="Pad /metrics to this size; a real vLLM page has about 51000 bytes.")
    ] = 0,
    load_time: Annotated[
        float, typer.Option(help="Seconds until it listens, as engines take to load weights.", min=0.0, max=86_400.0)
    ] = 0.0,
) -> None:
    """Emulated engines: vLLM's API, queues, batching, KV cache and metrics at the speed of a profile, without a model.

    Answers are filler text and say so. Break one on purpose with `POST /admin/fault`, e.g. `{"kind": "hang"}`.
    """
    settings = Settings(
        models=tuple(model or [DEFAULT_MODEL]),
        profile=read_profile(profile),
        max_num_seqs=max_num_seqs,
        kv_tokens=kv_tokens,
        max_num_batched_tokens=max_num_batched_tokens,
        max_model_len=max_model_len,
        speed=speed,
        seed=seed,
        metrics_bytes=metrics_bytes,
    )
    raise_file_limit()  # a thousand engines listen on a thousand sockets, and each has connections
    run(serve(settings, host=host, port=port, count=count, load_time=load_time))
