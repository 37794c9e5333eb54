"""What a replica's life is told (events) and what it wants done (instructions). Times are monotonic seconds."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple


class Health(Enum):
    """What one readiness probe found."""

    READY = "ready"
    #: it answers, and says that it can't serve
    NOT_READY = "not ready"
    #: nobody listens on the port
    NO_ANSWER = "no answer"
    #: the connection stands but the answer did not come in time: busy
    SLOW = "slow"


class Begin(NamedTuple):
    now: float


class Spawned(NamedTuple):
    """The process asked for by Spawn runs."""

    now: float


class SpawnFailed(NamedTuple):
    """It could not even be started (program missing, no port, …)."""

    now: float
    reason: str


class Hint(NamedTuple):
    """The engine's log says something about start-up, in plain words."""

    now: float
    text: str


class Probed(NamedTuple):
    now: float
    health: Health
    detail: str = ""


class Exited(NamedTuple):
    """The process is gone; `reason` says how and with which last words."""

    now: float
    reason: str


class Drain(NamedTuple):
    now: float
    reason: str


class Idle(NamedTuple):
    """A draining replica's last request ended."""

    now: float


class Stop(NamedTuple):
    now: float
    reason: str


class Tick(NamedTuple):
    """Time passed; due at `deadline`."""

    now: float


Event = Begin | Spawned | SpawnFailed | Hint | Probed | Exited | Drain | Idle | Stop | Tick


class Spawn(NamedTuple):
    """Start a process. Answer: Spawned, then Exited; or SpawnFailed."""


class AnnounceFound(NamedTuple):
    pass


class AnnounceLeaving(NamedTuple):
    reason: str


class AnnounceLost(NamedTuple):
    reason: str


class Terminate(NamedTuple):
    """Ask the process to exit (SIGTERM)."""


class Kill(NamedTuple):
    """Make it exit, with all its children (SIGKILL)."""


Instruction = Spawn | AnnounceFound | AnnounceLeaving | AnnounceLost | Terminate | Kill
