"""What a controller tells gateways of the replicas that it keeps (PUT /replicas): always all of them, so that a gateway
that was away knows them again within a second."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class RollEntry:
    """One replica that the backend lists."""

    id: str
    pool: str
    #: the backend's word for where it is in its life, for people
    state: str
    #: http://host:port; None: it has none yet
    url: str | None = None
    #: it may get requests
    serves: bool = False
    #: it gets no new ones, and running ones may end
    leaves: bool = False
    reason: str = ""
    restarts: int = 0


@dataclass(frozen=True, slots=True)
class Roll:
    replicas: tuple[RollEntry, ...] = ()
    #: what GET /scaling shows
    scaling: dict[str, Any] = field(default_factory=dict)
