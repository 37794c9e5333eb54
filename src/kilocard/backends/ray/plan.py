"""What travels between a controller and the actors that own engines. Plain data, pickled by Ray."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from kilocard.backends.base import ReplicaStatus
from kilocard.core.replica import Change, Found, Lost
from kilocard.engines.base import Engine
from kilocard.spec.model import PoolSpec


@dataclass(frozen=True, slots=True)
class HostPlan:
    """All that an actor needs to run one replica."""

    replica: str
    pool: PoolSpec
    engine: Engine
    served_names: tuple[str, ...]
    #: Ray's namespace of this cluster: parts the logs of two clusters on one node
    namespace: str
    #: the engine takes its GPUs from Ray itself
    over_ray: bool = False
    #: processes that make up the replica
    parts: int = 1


class HostReport(NamedTuple):
    """What a host answers to `watch`."""

    status: ReplicaStatus
    #: seconds since the state began (clocks of two machines have nothing in common)
    age: float
    #: what was announced since the number that was asked with
    news: tuple[Change, ...]
    #: ask with it next time
    number: int
    #: address of the host's node
    node: str


def standing(news: Iterable[Change]) -> tuple[Change, ...]:
    """What somebody has to hear who heard nothing so far: the last Found and what came after it, unless it is lost."""
    told: list[Change] = []
    for change in news:
        if isinstance(change, Found):
            told = [change]
        elif isinstance(change, Lost):
            told = []
        else:
            told.append(change)
    return tuple(told) if told and isinstance(told[0], Found) else ()
