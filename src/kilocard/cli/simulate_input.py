"""The words of `kilocard simulate`'s command line → a scenario and its workload."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from random import Random

from kilocard.cli.decision_file import decision_lines, is_decision_log
from kilocard.cli.pool_speed import PoolSpeed, pool_speed
from kilocard.cli.trace_file import trace_text
from kilocard.core.errors import UsageError
from kilocard.dispatch.config import PRIORITIES, PoolFacts
from kilocard.engines.registry import engine as find_engine
from kilocard.planner.demand import USUAL_INPUT, USUAL_OUTPUT
from kilocard.routing.registry import POLICIES
from kilocard.scaling.scaler import Scaler
from kilocard.sim.faults import read_fault
from kilocard.sim.recorded import recorded_requests
from kilocard.sim.scenario import PoolModel, Scenario, Signals, Tenant
from kilocard.spec.model import ClusterSpec, PoolSpec
from kilocard.spec.units import UnitError, duration
from kilocard.spec.vocabulary import MOST_REPLICAS
from kilocard.wire.tokens import DEFAULT_OUTPUT_TOKENS
from kilocard.workload.arrivals import Gamma, Poisson
from kilocard.workload.generate import generate
from kilocard.workload.lengths import Length, read_length
from kilocard.workload.mixes import Mix, read_mix
from kilocard.workload.read import read_trace
from kilocard.workload.request import WorkloadRequest
from kilocard.workload.reshape import cut, scale, spread

USUAL_DURATION_S = 60.0
#: of one simulation: each request takes some 500 bytes, each second of rest ten looks of each gateway
MOST_REQUESTS = 50_000_000
DAY_S = 86_400.0
MOST_SECONDS = 366 * DAY_S
#: points of the report's curves
POINTS = 240


@dataclass(frozen=True, slots=True)
class Load:
    """As typed; None: not given."""

    traces: tuple[Path, ...] = ()
    rate: float | None = None
    scale: float | None = None
    input: str | None = None
    output: str | None = None
    mix: str | None = None
    burstiness: float = 1.0
    duration: str | None = None
    requests: int | None = None


def workload(load: Load, seed: int) -> list[WorkloadRequest]:
    """Requests in order of at_s. Raises UsageError, TraceError."""
    rng = Random(f"{seed} workload")  # noqa: S311  # nothing secret is drawn
    if load.requests is not None and load.requests < 1:
        raise UsageError(f"--requests {load.requests}: 1 or more")
    seconds = None if load.duration is None else seconds_of("--duration", load.duration)
    if load.traces:
        found = _from_trace(load, seconds, rng)
    elif load.rate is None:
        raise UsageError(
            "say what load: --rate REQUESTS_PER_SECOND (with --input, --output, --duration), or --trace FILE"
        )
    else:
        if load.scale is not None:
            raise UsageError("--scale is about a trace: give --trace, or another --rate")
        if load.mix is not None and (load.input is not None or load.output is not None):
            raise UsageError("--mix has its own lengths: leave --input and --output away")
        mix = Mix.of(_length("--input", load.input, USUAL_INPUT), _length("--output", load.output, USUAL_OUTPUT))
        if load.mix is not None:
            mix = read_mix(load.mix)
        arrivals = Poisson(load.rate) if load.burstiness == 1.0 else Gamma.of_burstiness(load.rate, load.burstiness)
        if seconds is None and load.requests is None:
            seconds = USUAL_DURATION_S
        _bear(load.rate * (math.inf if seconds is None else seconds), load.requests)
        found = list(generate(arrivals, mix, rng, requests=load.requests, duration_s=seconds))
    if found and found[-1].at_s > MOST_SECONDS:
        raise UsageError(
            f"the last request comes {found[-1].at_s / DAY_S:,.0f} days after the first, and a year is simulated at "
            "most: --duration takes a part of it"
        )
    if not found:
        more = "--duration cuts all of the trace off" if load.traces else "a higher --rate or a longer --duration"
        raise UsageError(f"not one request arrives: {more}")
    return found


def _bear(requests: float, most: int | None) -> None:
    """Raises UsageError where so many would not fit into any machine's memory."""
    if requests > MOST_REQUESTS and (most is None or most > MOST_REQUESTS):
        raise UsageError(
            f"{requests:.3g} requests are more than the {MOST_REQUESTS:,} that are simulated at a time: a lower --rate "
            "or --scale, a shorter --duration, or --requests"
        )


def _length(option: str, text: str | None, usual: int) -> Length:
    try:
        return read_length(str(usual) if text is None else text)
    except UsageError as error:
        raise UsageError(f"{option}: {error}") from None


def _from_trace(load: Load, seconds: float | None, rng: Random) -> list[WorkloadRequest]:
    if load.input or load.output or load.mix or load.burstiness != 1.0:
        raise UsageError("--trace has its own lengths and arrivals: leave --input, --output, --mix, --burstiness away")
    found = spread(_read(load.traces), rng)
    if found and (first := min(each.at_s for each in found)) > MOST_SECONDS:
        found = cut(found, first, math.inf)  # its times are of the calendar
    if seconds is not None:
        found = cut(found, 0.0, seconds)
    if load.rate is not None:
        span = max((each.at_s for each in found), default=0.0)
        if load.scale is not None:
            raise UsageError("--rate scales a trace to so many requests a second: give it or --scale, not both")
        if not span:
            raise UsageError("--rate: all of the trace comes at one moment, so it has no rate to scale: use --scale")
        times = load.rate * span / len(found)
        _bear(times * len(found), load.requests)
        found = scale(found, times, rng)
    elif load.scale is not None:
        _bear(load.scale * len(found), load.requests)
        found = scale(found, load.scale, rng)
    return list(islice(found, load.requests))


def _read(paths: Sequence[Path]) -> Sequence[WorkloadRequest]:
    """One trace, or decision logs: of several gateways, or the files of one."""
    logs, read = [], None
    for path in paths:
        with trace_text(path) as lines:
            if is_decision_log(lines.readline()):
                logs.append(decision_lines(path))
                continue
            lines.seek(0)
            read = read_trace(lines).requests
        if len(paths) > 1:
            raise UsageError(f"--trace {path}: several can only be decision logs, of gateways side by side")
    return recorded_requests(*logs) if read is None else read


@dataclass(frozen=True, slots=True)
class Sizes:
    """As typed: one value for all pools, or POOL=VALUE."""

    replicas: tuple[str, ...] = ()
    profiles: tuple[str, ...] = ()
    #: whether pools that have `scaling` grow and shrink; None: those whose number is not given
    scaling: bool | None = None


def pool_models(
    spec: ClusterSpec, sizes: Sizes, load_s: float | None
) -> tuple[tuple[PoolModel, ...], dict[str, PoolSpeed]]:
    """Every pool that a model routes to, and where its speed comes from."""
    used = [name for name in spec.pools if any(model.pools.get(name) for model in spec.models.values())]
    replicas = by_pool("--replicas", sizes.replicas, used)
    profiles = by_pool("--profile", sizes.profiles, used)
    models: list[PoolModel] = []
    speeds: dict[str, PoolSpeed] = {}
    for name in used:
        pool = spec.pools[name]
        speed = speeds[name] = pool_speed(pool, profiles.get(name))
        model = _pool_model(pool, speed, replicas.get(name), load_s)
        scales = name not in replicas if sizes.scaling is None else sizes.scaling
        if scales and pool.scaling is not None:
            model = replace(
                model, scaler=partial(Scaler, pool, scrape_s=spec.gateway.scrape_interval, gpus_per_replica=model.gpus)
            )
        models.append(model)
    if sizes.scaling and not any(model.scaler for model in models):
        raise UsageError("--scaling: no pool has `scaling` in the cluster file (docs/scaling.md), so none would grow")
    return tuple(models), speeds


def _pool_model(pool: PoolSpec, speed: PoolSpeed, replicas: str | None, load_s: float | None) -> PoolModel:
    engine = find_engine(pool.engine)
    if replicas is not None and not (replicas.isdecimal() and 0 < int(replicas[:9]) <= MOST_REPLICAS):
        raise UsageError(f"--replicas {replicas!r} of pool {pool.name}: a whole number, from 1 to {MOST_REPLICAS:,}")
    count = int(replicas) if replicas is not None else len(pool.endpoints) or pool.replicas.min
    model = PoolModel(
        pool.name,
        speed.profile,
        count,
        PoolFacts(max_running=engine.max_running(pool), max_in_flight=pool.max_in_flight, tenants=pool.tenants),
        # a replica that needs no GPU counts as one, or hours of machines without would be free
        gpus=max(1, engine.gpu_count(pool)),
        prefix_cache=speed.prefix_cache,
        grace_s=pool.drain.grace,
    )
    return model if load_s is None else replace(model, load_s=load_s)


def by_pool(option: str, words: Sequence[str], pools: Sequence[str]) -> dict[str, str]:
    """`VALUE` for all pools, or `POOL=VALUE`, several with commas or the option again. What names a pool wins."""
    usual: list[str] = []
    found: dict[str, str] = {}
    for word in (part for each in words for part in each.split(",") if part.strip()):
        name, equals, value = (part.strip() for part in word.partition("="))
        if not equals:
            usual.append(name)
        elif name not in pools:
            raise UsageError(f"{option} {word}: there is no pool {name!r}; there are {', '.join(pools)}")
        elif name in found:
            raise UsageError(f"{option} {word}: pool {name} has {found[name]} already")
        else:
            found[name] = value
    if len(usual) > 1:
        raise UsageError(f"{option}: {' and '.join(usual)} for all pools; give one, or POOL=VALUE")
    return dict.fromkeys(pools, usual[0]) | found if usual else found


def scenario(
    spec: ClusterSpec,
    pools: tuple[PoolModel, ...],
    requests: Sequence[WorkloadRequest],
    *,
    gateways: int,
    signals: Signals,
    faults: Sequence[str],
    seed: int,
) -> Scenario:
    span = max(1.0, requests[-1].at_s)
    return Scenario(
        models=spec.models,
        pools=pools,
        gateways=gateways,
        signals=signals,
        timeouts=spec.gateway.timeouts,
        tenants={
            name: Tenant(PRIORITIES.index(tenant.priority), tenant.weight) for name, tenant in spec.tenants.items()
        },
        faults=tuple(read_fault(each) for each in faults),
        declared_tokens=DEFAULT_OUTPUT_TOKENS,
        seed=seed,
        sample_s=span / POINTS,
    )


def policies(text: str | None, spec: ClusterSpec) -> dict[str, Mapping[str, str]]:
    """Name of the run → policy by model. None: as the cluster file has it."""
    if text is None:
        own = {name: model.policy for name, model in spec.models.items()}
        return {" + ".join(dict.fromkeys(own.values())): own}
    names = list(POLICIES) if text.strip() == "all" else [name.strip() for name in text.split(",") if name.strip()]
    for name in names:
        if name not in POLICIES:
            raise UsageError(f"--policy: there is no {name!r}; take some of {', '.join(POLICIES)}, or all")
    if not names:
        raise UsageError(f"--policy: name at least one of {', '.join(POLICIES)}")
    return {name: dict.fromkeys(spec.models, name) for name in names}


def with_policy(scenario: Scenario, by_model: Mapping[str, str]) -> Scenario:
    return replace(
        scenario, models={name: replace(model, policy=by_model[name]) for name, model in scenario.models.items()}
    )


def seconds_of(option: str, text: str) -> float:
    try:
        return duration(float(text)) if text.replace(".", "", 1).isdecimal() else duration(text)
    except UnitError as error:
        raise UsageError(f"{option} {text}: {error}") from None
