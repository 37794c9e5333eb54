"""`kilocard simulate`: policies and sizes compared on a model of the cluster, on the same arrivals."""

from __future__ import annotations

import gc
import json as json_format
import math
from collections.abc import Callable, Container
from pathlib import Path
from time import monotonic
from typing import Annotated, Any

import typer

from kilocard.cli.output import notes, print_json
from kilocard.cli.simulate_input import (
    Load,
    Sizes,
    policies,
    pool_models,
    scenario,
    seconds_of,
    with_policy,
    workload,
)
from kilocard.cli.simulate_page import show
from kilocard.cli.simulate_report import report_html
from kilocard.cli.wiring import read_cluster
from kilocard.core.errors import UsageError
from kilocard.planner.demand import USUAL_TPOT, USUAL_TTFT
from kilocard.sim.cluster import Cluster
from kilocard.sim.report import Slo, report
from kilocard.sim.scenario import Scenario, Signals
from kilocard.workload.request import WorkloadRequest
from kilocard.workload.summary import summary

#: requests a second, seconds, times the traffic: more is a slip of the finger
MOST = 1_000_000_000
#: seconds of the wall clock between two words of progress
SAY_EVERY = 2.0


def _load(help: str) -> Any:
    return typer.Option(help=help, rich_help_panel="Load", show_default=False)


def _cluster(help: str) -> Any:
    return typer.Option(help=help, rich_help_panel="Cluster", show_default=False)


def simulate(
    cluster: Annotated[Path, typer.Argument(help="The cluster file.", show_default=False)],
    trace: Annotated[
        list[Path] | None, _load("Recorded traffic: a trace (docs/workloads.md), or gateways' decision logs.")
    ] = None,
    rate: Annotated[float | None, _load("Requests/s, Poisson; with --trace: scale the trace to this.")] = None,
    scale: Annotated[float | None, _load("With --trace: so many times the traffic, by superposed copies.")] = None,
    input: Annotated[str | None, _load("Prompt tokens: 512, 100-900 or mean=800,p99=6000. Default 512.")] = None,
    output: Annotated[str | None, _load("Output tokens, in the same forms. Default 256.")] = None,
    mix: Annotated[str | None, _load("Kinds of requests: '80% 512/128; 20% mean=6000,p99=20000/500'.")] = None,
    burstiness: Annotated[
        float, _load("Below 1: arrivals come in bursts (a gamma's shape). Default 1, Poisson.")
    ] = 1.0,
    duration: Annotated[str | None, _load("Of the arrivals: 90s, 1h. Default 60s, or the whole trace.")] = None,
    requests: Annotated[int | None, _load("At most so many.")] = None,
    replicas: Annotated[
        list[str] | None, _cluster("N, or POOL=N. Default: the file's endpoints, or replicas.min.")
    ] = None,
    profile: Annotated[
        list[str] | None, _cluster("Speed of a replica: a profile file or built-in name, or POOL=FILE.")
    ] = None,
    gateways: Annotated[int, _cluster("Gateways that don't see each other's requests. Default 1.")] = 1,
    policy: Annotated[str | None, _cluster("Policies to compare: a,b,c or all. Default: the file's.")] = None,
    scrape: Annotated[str | None, _cluster("Between two readings of a replica. Default: the file's.")] = None,
    delay: Annotated[str, _cluster("Age of a reading when it comes. Default 10ms.")] = "10ms",
    scaling: Annotated[
        bool | None,
        typer.Option(
            "--scaling/--no-scaling",
            help="Pools with `scaling` grow and shrink as their file says. Default: those without --replicas.",
            rich_help_panel="Cluster",
            show_default=False,
        ),
    ] = None,
    load_time: Annotated[str | None, _cluster("From a replica's start until it serves. Default 60s.")] = None,
    fault: Annotated[
        list[str] | None,
        _cluster("'crash POOL-0 at=60 restart=5', 'slow POOL-1 factor=3', hang, partition, drain, start (docs)."),
    ] = None,
    seed: Annotated[int, typer.Option(help="All chance comes from it: equal seeds, equal results.")] = 0,
    slo_ttft: Annotated[float, typer.Option(help="Seconds to the first token, for goodput.")] = USUAL_TTFT,
    slo_tpot: Annotated[float, typer.Option(help="Seconds a token after it, for goodput.")] = USUAL_TPOT,
    until: Annotated[
        str | None,
        typer.Option(help="Stop at this time; what still runs is counted as unfinished.", show_default=False),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
    out: Annotated[
        Path | None, typer.Option(help="Folder for simulation.json and report.html.", show_default=False)
    ] = None,
) -> None:
    """What would this cluster do under that load? The gateway's own dispatcher and policies run over a model of the
    engines, on virtual time. All policies get the same arrivals.
    """
    for name, value in (("--slo-ttft", slo_ttft), ("--slo-tpot", slo_tpot), ("--rate", rate), ("--scale", scale)):
        if value is not None and not 0 < value <= MOST:
            raise UsageError(f"{name} {value:g}: must be above 0, and {MOST:,} at most")
    begun = monotonic()
    spec = read_cluster(cluster)
    runs = policies(policy, spec)
    pools, speeds = pool_models(
        spec,
        Sizes(tuple(replicas or ()), tuple(profile or ()), scaling),
        None if load_time is None else seconds_of("--load-time", load_time),
    )
    asked = workload(Load(tuple(trace or ()), rate, scale, input, output, mix, burstiness, duration, requests), seed)
    signals = Signals(
        scrape_s=spec.gateway.scrape_interval if scrape is None else seconds_of("--scrape", scrape),
        delay_s=seconds_of("--delay", delay),
    )
    base = scenario(spec, pools, asked, gateways=gateways, signals=signals, faults=tuple(fault or ()), seed=seed)
    slo = Slo(slo_ttft, slo_tpot)
    end = math.inf if until is None else seconds_of("--until", until)
    found = {name: _play(name, with_policy(base, by_model), asked, slo, end) for name, by_model in runs.items()}
    document = {
        "wall_seconds": round(monotonic() - begun, 3),
        "cluster": str(cluster),
        "requests": len(asked),
        "replicas": base.replicas,
        "seed": seed,
        "gateways": gateways,
        "signals": {"scrape_s": signals.scrape_s, "delay_s": signals.delay_s, "jitter": signals.jitter,
                    "hop_s": signals.hop_s},
        "slo": {"ttft_s": slo.ttft_s, "tpot_s": slo.tpot_s},
        "workload": _workload(asked, spec.models),
        "pools": {
            pool.name: {"replicas": pool.replicas, "gpus_per_replica": pool.gpus, "prefix_cache": pool.prefix_cache,
                        "scaling": pool.scaler is not None, "speed": speeds[pool.name].told,
                        "profile": pool.profile.to_mapping()}
            for pool in pools
        },
        "faults": list(fault or ()),
        "policies": found,
    }  # fmt: skip
    if out is not None:
        _write(out, document)
    if json:
        print_json(document)
    else:
        show(document)


def _play(name: str, scenario: Scenario, requests: list[WorkloadRequest], slo: Slo, until: float) -> dict[str, Any]:
    cluster = Cluster(scenario, requests, progress=_progress(name, len(requests)))
    gc.disable()  # the simulator leaves no rings of references; looking for them would take a quarter of the time
    try:
        cluster.play(until)
    finally:
        gc.enable()
    return report(cluster, slo)


def _progress(name: str, requests: int) -> Callable[[int], None]:
    said = monotonic()

    def tell(left: int) -> None:
        nonlocal said
        now = monotonic()
        if now - said >= SAY_EVERY:
            said = now
            notes.print(f"{name}: {requests - left:,} of {requests:,} requests")

    return tell


def _workload(requests: list[WorkloadRequest], models: Container[str]) -> dict[str, Any]:
    found = summary(requests)
    return {
        "requests": found.requests,
        "span_s": found.span_s,
        "rate_per_s": found.rate,
        "input_tokens": {"mean": found.input.mean, "p50": found.input.p50, "p99": found.input.p99},
        "output_tokens": {"mean": found.output.mean, "p50": found.output.p50, "p99": found.output.p99},
        "sessions": found.sessions,
        # they go to the cluster's first model
        "unknown_model": sum(each.model is not None and each.model not in models for each in requests),
        # what a prefix cache without end would find
        "prefix_share": found.prefix_share,
    }


def _write(folder: Path, document: dict[str, Any]) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "simulation.json").write_text(json_format.dumps(document, indent=1) + "\n")
        (folder / "report.html").write_text(report_html(document), encoding="utf-8")
    except OSError as error:
        raise UsageError(f"--out {folder}: {error.strerror or error}") from error
    notes.print(f"{folder}/report.html and simulation.json written")
