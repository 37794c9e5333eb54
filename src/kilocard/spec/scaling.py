"""How a pool grows and shrinks, as frozen types; part of `spec/model.py`. Durations are seconds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

#: minutes of a day
DAY = 1440


@dataclass(frozen=True, slots=True)
class ScaleStep:
    threshold: float
    for_seconds: float
    step: int = 1


@dataclass(frozen=True, slots=True)
class ObjectiveSpec:
    """What `policy: target` holds."""

    #: seconds to the first token, from arrival at the gateway
    ttft: float = 2.0
    #: of the requests, at least this share
    share: float = 0.95


@dataclass(frozen=True, slots=True)
class ScheduleSpec:
    """Other bounds at some hours of some days. Minutes since midnight on the wall clock of `zone`."""

    name: str
    #: Monday is 0
    days: tuple[int, ...] = (0, 1, 2, 3, 4, 5, 6)
    start: int = 0
    #: not after `start`: on the next day
    end: int = DAY
    #: a name of the IANA database
    zone: str = "UTC"
    #: None: the pool's own
    min: int | None = None
    max: int | None = None


@dataclass(frozen=True, slots=True)
class ScalingSpec:
    policy: str = "threshold"
    #: of `threshold`
    signal: str = "waiting"
    up: ScaleStep = ScaleStep(20.0, 30.0)
    #: `target` uses its `for_seconds` only
    down: ScaleStep = ScaleStep(5.0, 300.0)
    #: of `target`
    slo: ObjectiveSpec = ObjectiveSpec()
    #: requests a second that one replica serves within the objective, until that is learned; None: unknown
    capacity: float | None = None
    #: most replicas added at a time by `target`; None: as many as there are, 4 at least
    surge: int | None = None
    #: after a change none in the other direction for so long; None: as the policy has it
    cooldown: float | None = None
    #: with replicas.min 0: none are kept after so long without a request
    idle: float = 600.0
    #: most GPUs that the pool may have; None: no bound of its own
    gpus: int | None = None
    schedules: Mapping[str, ScheduleSpec] = field(default_factory=dict)
