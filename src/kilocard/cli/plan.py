"""`kilocard plan`: which arguments, how many GPUs, in which layout; and why."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Annotated, Any

import typer

from kilocard.cli.model_source import model_source
from kilocard.cli.output import notes, print_json
from kilocard.cli.plan_input import engine_model, lengths, read_topology, write_cluster
from kilocard.cli.plan_page import show, written_note
from kilocard.cli.profile_file import read_profile
from kilocard.core.errors import UsageError
from kilocard.engines.tuning import PLANNED, tuning
from kilocard.perf.gpus import gpu as find_gpu
from kilocard.perf.profile import Profile
from kilocard.perf.setting import EngineSetting
from kilocard.planner.demand import Demand, Objective
from kilocard.planner.document import document, impossible
from kilocard.planner.fleet import EFFICIENCY, MEASURED_HEADROOM, MODELLED_HEADROOM, MOST, Sizing
from kilocard.planner.layouts import Pins
from kilocard.planner.machine import Machines
from kilocard.planner.parameters import longest
from kilocard.planner.plan import Impossible, plan
from kilocard.planner.pool import cluster
from kilocard.planner.replica import Question, Speed, speed_of


def _panel(panel: str) -> Callable[..., Any]:
    """An option of one panel of the help: (help, names …)."""
    return lambda text, *names: typer.Option(*names, help=text, rich_help_panel=panel)


_load, _machines, _engine, _answer = map(
    _panel, ("The load", "The machines", "Arguments of the engine (pins)", "The answer")
)


def plan_command(
    model: Annotated[
        str, typer.Argument(help="A config.json, a folder with one, or a built-in name.", show_default=False)
    ],
    gpu: Annotated[
        list[str], typer.Option(help="GPU type, e.g. A100-80GB; several are compared by cost.", show_default=False)
    ],
    rate: Annotated[float | None, _load("Requests/s at the peak.")] = None,
    concurrency: Annotated[int | None, _load("Instead of --rate: so many requests always in flight.")] = None,
    input: Annotated[str | None, _load("Prompt tokens: 512, 100-900 or mean=800,p99=6000. Default 512.")] = None,
    output: Annotated[str | None, _load("Output tokens, in the same forms. Default 256.")] = None,
    slo_ttft: Annotated[
        float | None, _load("Seconds to the first token, for 95 % of requests. Default 2, more for long prompts.")
    ] = None,
    slo_tpot: Annotated[float | None, _load("Seconds a token after it, likewise. Default 0.1.")] = None,
    profile: Annotated[
        str | None, _load("Measured speed of one replica: a profile file, fitted on a load test, or a built-in name.")
    ] = None,
    headroom: Annotated[
        float | None,
        _load(
            f"Share of capacity used at the peak. Default {MODELLED_HEADROOM} where speed is modelled, {MOST} at most; "
            f"{MEASURED_HEADROOM:g} with a measured --profile."
        ),
    ] = None,
    scaling_efficiency: Annotated[
        float | None,
        _load(
            f"What n replicas give over n times one; measure it. Default {EFFICIENCY} where speed is modelled; with a "
            "measured --profile what virtual time shows."
        ),
    ] = None,
    gpus: Annotated[int | None, _machines("GPUs that there are. Default: as many as it takes.")] = None,
    nodes: Annotated[int | None, _machines("Machines that there are.")] = None,
    gpus_per_node: Annotated[int | None, _machines("GPUs of a machine. Default: the type's usual server.")] = None,
    link: Annotated[
        str | None, _machines("Between GPUs of a machine: nvlink or pcie. Default: what the type has.")
    ] = None,
    topology: Annotated[Path | None, _machines("What `nvidia-smi topo -m` printed there.")] = None,
    network: Annotated[float | None, _machines("Gbit/s between machines; pipelines may then cross them.")] = None,
    rdma: Annotated[bool, _machines("That network is InfiniBand or RoCE.", "--rdma")] = False,
    gpu_memory_gib: Annotated[
        float | None, _machines("GiB of one GPU as CUDA reports it, instead of the catalogue's.")
    ] = None,
    engine: Annotated[str, _engine(f"{', '.join(PLANNED)}.")] = PLANNED[0],
    engine_version: Annotated[str | None, _engine("Defaults and memory accounts move with it.")] = None,
    tensor: Annotated[int | None, _engine("Tensor parallel size.")] = None,
    pipeline: Annotated[int | None, _engine("Pipeline parallel size.")] = None,
    expert_parallel: Annotated[
        bool | None, _engine("Experts shared out whole.", "--expert-parallel/--no-expert-parallel")
    ] = None,
    gpu_memory_utilization: Annotated[float | None, _engine("Share of the GPU's memory.")] = None,
    max_model_len: Annotated[int | None, _engine("Longest prompt and output together.")] = None,
    max_num_seqs: Annotated[int | None, _engine("Requests that run at once.")] = None,
    max_num_batched_tokens: Annotated[int | None, _engine("Tokens of one step.")] = None,
    dtype: Annotated[str, _engine("auto, bfloat16, float16, float32.")] = "auto",
    quantization: Annotated[str | None, _engine("fp8, awq, gptq, mxfp4 …")] = None,
    kv_cache_dtype: Annotated[str, _engine("auto, fp8 …")] = "auto",
    block_size: Annotated[int | None, _engine("Tokens of a KV block.")] = None,
    images: Annotated[int, _engine("Images of a request. 0: text only, without the vision tower.")] = 1,
    enforce_eager: Annotated[bool, _engine("No CUDA graphs.", "--enforce-eager")] = False,
    write: Annotated[Path | None, _answer("Write a cluster file with this pool.")] = None,
    seed: Annotated[int, _answer("Of the trial on virtual time.")] = 0,
    json: Annotated[bool, _answer("Print one JSON document.", "--json")] = False,
) -> None:
    """Which engine arguments, how many GPUs and in which layout carry a load, and why.

    Without --rate: what fits on one replica and how fast it is. Exit 1: nothing works, with the reason of each layout.
    """
    source = model_source(model)
    if engine not in PLANNED:
        raise UsageError(f"--engine {engine!r}: plans are made for {', '.join(PLANNED)}")
    names = tuning(engine)
    if rate is not None and concurrency is not None:
        raise UsageError("--rate and --concurrency: give one of them")
    positive = {
        "--rate": rate, "--concurrency": concurrency, "--slo-ttft": slo_ttft, "--slo-tpot": slo_tpot,
        "--tensor": tensor, "--pipeline": pipeline, "--gpu-memory-gib": gpu_memory_gib, "--network": network,
        "--max-model-len": max_model_len, "--max-num-seqs": max_num_seqs, "--block-size": block_size,
        "--max-num-batched-tokens": max_num_batched_tokens, "--gpus-per-node": gpus_per_node,
    }  # fmt: skip
    if images < 0:
        raise UsageError(f"--images {images}: 0 or more")
    for name, value in positive.items():
        if value is not None and not 0 < value < math.inf:
            raise UsageError(f"{name} {value:g}: must be above 0")
    if gpu_memory_utilization is not None and not 0 < gpu_memory_utilization <= 1:
        raise UsageError(f"--gpu-memory-utilization {gpu_memory_utilization:g}: a share, above 0 and at most 1")
    measured = None if profile is None else read_profile(profile)
    tunes = rate is not None or (concurrency is None and (input is not None or output is not None))
    demand = Demand(
        *lengths(input, output),
        rate_per_s=rate,
        concurrency=concurrency,
        objective=Objective.of(slo_ttft, slo_tpot),
    )
    types = tuple(find_gpu(name.strip()) for each in gpu for name in each.split(",") if name.strip())
    if not types:
        raise UsageError("--gpu: name at least one, such as H100-80GB")
    machine = None if topology is None else read_topology(topology)
    question = Question(
        architecture=source.architecture,
        gpus=types,
        demand=demand,
        setting=EngineSetting(
            budget=names.budget,
            version=engine_version,
            utilization=gpu_memory_utilization,
            max_model_len=max_model_len,
            max_num_seqs=max_num_seqs,
            max_num_batched_tokens=max_num_batched_tokens,
            dtype=dtype,
            quantization=quantization,
            kv_cache_dtype=kv_cache_dtype,
            block_size=block_size,
            enforce_eager=enforce_eager,
            prefix_caching=True,  # as in the command that the answer writes, whatever the version's own default
            images=images,
            gpu_memory_gib=gpu_memory_gib,
        ),
        machines=Machines(
            gpus=gpus,
            nodes=nodes,
            per_node=gpus_per_node or (machine.gpus if machine is not None else types[0].node),
            link=link,
            network_gbit_s=network,
            rdma=rdma,
            topology=machine,
        ),
        pins=_pins(tensor, pipeline, expert_parallel, tunes=tunes),
        sizing=_sizing(headroom, scaling_efficiency, measured),
        measured=measured,
        engine=engine,
        tunes=tunes,
        longest=longest(demand.input, demand.output, _chance(seed)),
    )
    _say(_with_layout(question), engine_model(model, source), _chance(seed), write=write, json=json)


def _say(question: Question, model: str, rng: Random, *, write: Path | None, json: bool) -> None:
    try:
        found = plan(question, rng)
    except Impossible as error:
        if json:
            print_json(impossible(question, error.refusals, model=model))
        raise
    if write is not None:
        write_cluster(write, cluster(found, model=model), note=written_note(found))
        notes.print(f"{write} written: kilocard gateway {write}")
    if json:
        print_json(document(found, model=model))
    else:
        show(found, model=model)
    if not found.choice.enough:
        sys.exit(1)


def _chance(seed: int) -> Random:
    return Random(seed)  # noqa: S311  # a trial, not a secret


def _sizing(headroom: float | None, efficiency: float | None, given: Profile | None) -> Sizing:
    for name, value in (("--headroom", headroom), ("--scaling-efficiency", efficiency)):
        if value is not None and not 0 < value <= 1:
            raise UsageError(f"{name} {value:g}: a share, above 0 and at most 1")
    modelled = given is None or speed_of(given) is Speed.MODELLED
    return (Sizing.modelled if modelled else Sizing.measured)(headroom, efficiency)


def _pins(tensor: int | None, pipeline: int | None, expert: bool | None, *, tunes: bool) -> Pins:
    """Without a load, one pinned degree means that the engine was started so: the others are its defaults."""
    if tunes or (tensor is None and pipeline is None):
        return Pins(tensor, pipeline, expert)
    return Pins(tensor or 1, pipeline or 1, expert or False)


def _with_layout(question: Question) -> Question:
    """A measured profile speaks of one layout: what is pinned, else one GPU."""
    if question.measured is None:
        return question
    pins = question.pins
    return replace(question, pins=replace(pins, tensor=pins.tensor or 1, pipeline=pins.pipeline or 1))
