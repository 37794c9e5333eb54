"""What `scaling` can't know of itself: it contradicts the pool's replicas, or one of its parts another."""

from __future__ import annotations

from collections.abc import Callable

from kilocard.spec.model import PoolSpec
from kilocard.spec.problems import Path, Problems
from kilocard.spec.vocabulary import TIMES

_ONLY_TARGET = ("slo", "capacity", "surge")
_ONLY_THRESHOLD = ("signal", "up")


def check_scaling(pool: PoolSpec, path: Path, problems: Problems, written: Callable[[Path], bool]) -> None:
    """`path` is the pool's. Silent where something in `scaling` is reported already."""
    scaling, here = pool.scaling, (*path, "scaling")
    if scaling is None or problems.touches(here, (*path, "replicas")):
        return
    unused = _ONLY_TARGET if scaling.policy == "threshold" else _ONLY_THRESHOLD
    other = "target" if scaling.policy == "threshold" else "threshold"
    for key in unused:
        if written((*here, key)):
            problems.add(
                (*here, key),
                f"is there, but policy is {scaling.policy}, which does not use it",
                f"remove it, or write policy: {other}",
            )
    if scaling.policy == "threshold":
        _check_bounds(pool, here, problems, written)
    if written((*here, "idle")) and pool.replicas.min and not _schedules_allow_none(pool):
        problems.add(
            (*here, "idle"), f"is there, but replicas.min is {pool.replicas.min}", "write replicas: {min: 0, …}"
        )
    each = pool.gpus.per_replica if pool.gpus is not None else 1
    if scaling.gpus is not None and scaling.gpus < each * max(1, pool.replicas.min):
        problems.add(
            (*here, "gpus"),
            f"is {scaling.gpus}, too few for {max(1, pool.replicas.min)} × {each} (replicas.min × GPUs of a replica)",
            "raise it, or lower replicas.min",
        )
    for name in scaling.schedules:
        _check_schedule(pool, name, (*here, "schedules", name), problems)


def _schedules_allow_none(pool: PoolSpec) -> bool:
    return pool.scaling is not None and any(each.min == 0 for each in pool.scaling.schedules.values())


def _check_bounds(pool: PoolSpec, here: Path, problems: Problems, written: Callable[[Path], bool]) -> None:
    scaling = pool.scaling
    assert scaling is not None
    if scaling.signal in TIMES:
        for key in (("up", "above"), ("down", "below")):
            if not written((*here, *key)):
                problems.add(
                    (*here, *key),
                    f"is missing, and its default counts requests, not the seconds of {scaling.signal}",
                    "write both, e.g. up: {above: 2}, down: {below: 0.5}",
                )
    if scaling.down.threshold >= scaling.up.threshold:
        problems.add(
            (*here, "down", "below"),
            f"is {scaling.down.threshold:g}, not less than up.above ({scaling.up.threshold:g})",
            "leave a gap between them, or the pool grows and shrinks in turn",
        )
    if scaling.signal == "kv_usage" and scaling.up.threshold >= 1:
        problems.add(
            (*here, "up", "above"),
            f"is {scaling.up.threshold:g}, which kv_usage never passes",
            "kv_usage is a share from 0 to 1: write e.g. up: {above: 0.85}, down: {below: 0.4}",
        )


def _check_schedule(pool: PoolSpec, name: str, here: Path, problems: Problems) -> None:
    assert pool.scaling is not None
    schedule = pool.scaling.schedules[name]
    if schedule.min is None and schedule.max is None:
        problems.add(here, "changes nothing", "give it a min, a max or both")
        return
    low = pool.replicas.min if schedule.min is None else schedule.min
    high = pool.replicas.max if schedule.max is None else schedule.max
    if low > high:
        problems.add(here, f"has a min of {low} and a max of {high}", "raise max or lower min (also those of replicas)")
    elif high > pool.replicas.max:
        problems.add(
            (*here, "max"),
            f"is {high}, more than replicas.max ({pool.replicas.max})",
            "raise replicas.max, which no schedule can pass",
        )
    if schedule.start == schedule.end:
        problems.add((*here, "to"), "is the same as from", "for the whole day write from: 00:00, to: 24:00")
