"""What a policy says, before the pool's bounds and pauses are laid on it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from kilocard.scaling.decision import Numbers, Reason
from kilocard.scaling.view import View


@dataclass(frozen=True, slots=True)
class Proposal:
    """`replicas` is in terms of `View.have`."""

    replicas: int
    reason: Reason
    sentence: str
    numbers: Numbers = field(default_factory=dict)


class Policy(Protocol):
    """A state machine that is asked about once a second."""

    def propose(self, now: float, view: View) -> Proposal:
        """What the pool needs. Called at every look, also where nothing can change."""

    def changed(self, now: float) -> None:
        """The number of replicas was changed: conditions begin anew."""

    def unseen(self) -> None:
        """Nobody looked for a while: what holds now is not known to have held all the time."""

    def snapshot(self, now: float) -> dict[str, Any]:
        """What must survive a restart, as JSON data. Times are ages."""

    def restore(self, now: float, saved: Mapping[str, Any]) -> None:
        """What `snapshot` gave. Anything that does not fit is passed over."""
