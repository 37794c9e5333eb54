"""Faults made on purpose: what breaks, for which requests, for how long."""

from __future__ import annotations

import random
from enum import StrEnum

import msgspec

from kilocard.emulator.failure import Refused


class Kind(StrEnum):
    NONE = "none"
    #: requests are accepted and never answered
    HANG = "hang"
    #: steps take `factor` times longer
    SLOW = "slow"
    #: `status` at once
    ERROR = "error"
    #: the connection is reset after `after_chunks` tokens
    DIE_MID_STREAM = "die_mid_stream"
    #: nothing more comes after `after_chunks` tokens; the connection stays
    STALL_MID_STREAM = "stall_mid_stream"
    #: the connection is reset as soon as the request is there
    RESET_BEFORE_RESPONSE = "reset_before_response"
    #: the listening socket is closed and all connections are cut, for `duration_s`
    REFUSE = "refuse"
    #: /health and /v1/models say 200 while requests fail with 500; `invert`: they say 503 while requests work
    LIE_HEALTH = "lie_health"


class Fault(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body of POST /admin/fault."""

    kind: Kind
    #: slow: how many times longer
    factor: float = 4.0
    #: error: HTTP status
    status: int = 500
    #: die_mid_stream, stall_mid_stream: tokens that still come (of an answer in one piece too: it dies unsent)
    after_chunks: int = 5
    #: share of requests that are hit, 0–1
    share: float = 1.0
    #: so many requests are hit, then the fault is over; null: no end
    count: int | None = None
    #: seconds until the fault is over; null: until the next fault or "none"
    duration_s: float | None = None
    #: lie_health: the other way round
    invert: bool = False
    #: hang, error, reset_before_response: "requests" (the API only) or "all" (also /health, /metrics, /v1/models)
    scope: str = "requests"

    def check(self) -> None:
        """Raises Refused (400)."""
        problems = [
            ("factor", self.factor > 0, "must be above 0"),
            ("status", 400 <= self.status <= 599, "must be an HTTP status from 400 to 599"),
            ("after_chunks", self.after_chunks >= 0, "must be 0 or more"),
            ("share", 0 <= self.share <= 1, "must be from 0 to 1"),
            ("count", self.count is None or self.count >= 1, "must be 1 or more"),
            ("duration_s", self.duration_s is None or 0 < self.duration_s < 86_400, "must be above 0 and below a day"),
            ("scope", self.scope in {"requests", "all"}, 'must be "requests" or "all"'),
        ]
        for name, fine, said in problems:
            if not fine:
                raise Refused(400, f"{name}: {said}", name)
        if self.kind is Kind.REFUSE and self.duration_s is None:
            raise Refused(400, "duration_s: refuse needs one, since nobody can reach this port to end it", "duration_s")


NO_FAULT = Fault(Kind.NONE)


class Faults:
    """The fault in force, and whom it hits."""

    def __init__(self, rng: random.Random) -> None:
        self.fault = NO_FAULT
        self.hits = 0
        self._rng = rng

    def set(self, fault: Fault) -> None:
        self.fault = fault
        self.hits = 0

    def hit(self, *, control: bool = False) -> Fault | None:
        """The fault if it hits the request that has just come. `control`: /health, /metrics and the like."""
        fault = self.fault
        if fault.kind in {Kind.NONE, Kind.SLOW, Kind.REFUSE}:
            return None
        if control and (fault.scope != "all" or fault.kind in {Kind.DIE_MID_STREAM, Kind.STALL_MID_STREAM}):
            return None
        if fault.kind is Kind.LIE_HEALTH and fault.invert:
            return None
        if fault.share < 1 and self._rng.random() >= fault.share:
            return None
        self.hits += 1
        if fault.count is not None and self.hits >= fault.count:
            self.fault = NO_FAULT
        return fault

    @property
    def says_ill(self) -> bool:
        """Health checks fail while requests work."""
        return self.fault.kind is Kind.LIE_HEALTH and self.fault.invert
