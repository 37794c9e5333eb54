"""What is held against a request body: the deaths of replicas that it was present at."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kilocard.dispatch.replica import Replica
    from kilocard.dispatch.request import LiveRequest
    from kilocard.dispatch.topology import Model


def short(fingerprint: str) -> str:
    """As people see it: the beginning of the hash."""
    return fingerprint.rpartition("-")[2][:8]


@dataclass(slots=True)
class Conviction:
    """A body that is refused until `until`."""

    fingerprint: str
    model: str
    #: that died of it, in order
    replicas: tuple[str, ...]
    since: float
    until: float
    #: requests refused so far
    refused: int = 0

    @property
    def short(self) -> str:
        """The beginning of its hash: enough for people to tell bodies apart."""
        return short(self.fingerprint)


class Incident:
    """One replica that may have died, and whose bodies were on it then.

    `marks`: body → whether it counts there. A copy that was sent before an earlier death of the same body was known
    does not: clients that send one body often (benchmarks, health checks) have copies everywhere when a replica dies.
    """

    __slots__ = ("asked_at", "at", "died_at", "explained", "marks", "replica", "status", "waits")

    def __init__(self, at: float, replica: Replica, status: bool) -> None:
        self.at = self.asked_at = at
        self.replica = replica
        #: it has only answered with errors so far; no connection was lost
        self.status = status
        #: a verdict is expected within moments, and worth waiting for
        self.waits = True
        #: None: nobody knows yet
        self.died_at: float | None = None
        #: it is known whose fault it was
        self.explained = False
        self.marks: dict[Mark, bool] = {}

    @property
    def open(self) -> bool:
        return self.died_at is None


class Mark:
    """One body under suspicion, or lately acquitted."""

    __slots__ = (
        "acquitted", "age", "conviction", "fingerprint", "incidents", "late", "model", "request", "running", "seen_at",
        "strikes", "until",
    )  # fmt: skip

    def __init__(self, fingerprint: str, model: Model) -> None:
        self.fingerprint = fingerprint
        self.model = model
        #: those it was present at, open or not
        self.incidents: list[Incident] = []
        #: confirmed deaths that count
        self.strikes = 0
        #: when the last incident was noticed; copies sent before that prove nothing
        self.seen_at = float("-inf")
        #: longest time, in seconds, that it had been on a replica when that failed
        self.age = 0.0
        #: a replica failed when content of the answer was there already: content proves nothing then
        self.late = False
        #: it has been answered under suspicion: it takes one death more
        self.acquitted = False
        self.until = 0.0
        #: the copy that runs while it is under suspicion
        self.running: LiveRequest | None = None
        #: id of the last request with this body
        self.request = 0
        self.conviction: Conviction | None = None

    @property
    def suspect(self) -> bool:
        """It has to be kept apart. Errors alone are no reason: they are common, and engines seldom die of them."""
        return any(not (incident.open and incident.status) for incident in self.incidents)

    @property
    def restricted(self) -> bool:
        """A request with it can't go just anywhere, or nowhere at all."""
        return self.conviction is not None or self.suspect

    def awaits_verdict(self) -> bool:
        """One more confirmation would convict it, and that may come any moment: no further replica is risked now."""
        count = self.strikes
        waits = False
        for incident in self.incidents:
            if incident.open:
                count += incident.marks[self]
                waits |= incident.waits
        return waits and count >= self.model.spec.quarantine.deaths

    def forget(self, incident: Incident) -> None:
        """It had no part in that."""
        self.incidents.remove(incident)
        if not incident.open:
            self.strikes -= incident.marks[self]
        if not self.incidents:
            self.late = False
            self.age = 0.0
