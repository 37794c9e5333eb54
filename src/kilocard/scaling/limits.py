"""What bounds a pool from outside the cluster file's own `replicas`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple


class LocalTime(NamedTuple):
    """What the clock on the wall shows in one time zone. Monday is 0."""

    weekday: int
    minute: int


@dataclass(frozen=True, slots=True)
class Limits:
    """Handed in at every decision, since it may change."""

    #: most replicas that the backend's quota or the free GPUs allow, those that the pool has included; None: unknown
    replicas: int | None = None
    #: the time in each zone that the pool's schedules name (Scaler.zones)
    local: Mapping[str, LocalTime] = field(default_factory=dict)
