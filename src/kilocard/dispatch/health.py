"""Is a replica usable? The ejection state machine: a transition table, and the counts that drive it.

READY takes requests. EJECTED takes none until its back-off is over; then the driver is asked to probe it
(PROBING). If the probe answers, one real request at a time may go there (HALF_OPEN, then TRIAL while it runs);
its first content byte makes the replica READY again. RESTING is the milder form for a replica that must not be
ejected, because too few others are left: it refused a connection, so it is left alone for at most two seconds
and then gets one request at a time, without a probe.

Nothing here knows about load: health never touches a request counter (vllm-router#197).
"""

from __future__ import annotations

from enum import Enum
from random import Random

from kilocard.spec.model import EjectSpec


class State(Enum):
    READY = "ready"
    EJECTED = "ejected"
    PROBING = "probing"
    HALF_OPEN = "half_open"
    TRIAL = "trial"
    RESTING = "resting"


class Signal(Enum):
    EJECT = "eject"  # it failed too often, and enough others are left
    REST = "rest"  # it refused a connection, but has to stay in
    BACKOFF_OVER = "backoff_over"
    PROBE_OK = "probe_ok"
    PROBE_FAILED = "probe_failed"
    FLOOR = "floor"  # too few others are left: it has to come back at once
    TRIAL_SENT = "trial_sent"
    TRIAL_OK = "trial_ok"
    TRIAL_VOID = "trial_void"  # the client left or its own deadline ended: no verdict


TRANSITIONS: dict[tuple[State, Signal], State] = {
    (State.READY, Signal.EJECT): State.EJECTED,
    (State.READY, Signal.REST): State.RESTING,
    (State.EJECTED, Signal.BACKOFF_OVER): State.PROBING,
    (State.EJECTED, Signal.FLOOR): State.HALF_OPEN,
    (State.PROBING, Signal.PROBE_OK): State.HALF_OPEN,
    (State.PROBING, Signal.PROBE_FAILED): State.EJECTED,
    (State.PROBING, Signal.FLOOR): State.HALF_OPEN,
    (State.RESTING, Signal.BACKOFF_OVER): State.HALF_OPEN,
    (State.HALF_OPEN, Signal.TRIAL_SENT): State.TRIAL,
    (State.TRIAL, Signal.TRIAL_OK): State.READY,
    (State.TRIAL, Signal.TRIAL_VOID): State.HALF_OPEN,
    (State.TRIAL, Signal.EJECT): State.EJECTED,
    (State.TRIAL, Signal.REST): State.RESTING,
}

#: states in which a request may be sent to the replica
OPEN = frozenset({State.READY, State.HALF_OPEN})
#: states that the floor bounds: no request gets there, however long it takes
OUT = frozenset({State.EJECTED, State.PROBING})

#: a replica at the floor rests this long after a refused connection, doubled each time up to the second
REST, REST_MAX = 0.2, 2.0
#: back-offs vary by ± this share, so that replicas ejected together don't come back together
JITTER = 0.25


class Health:
    """State and failure counts of one replica. Times are seconds."""

    __slots__ = (
        "_bad_before", "_ok_before", "_rotated_at", "bad", "cause", "consecutive", "failures", "hearsay", "hung",
        "last_failure_at", "level", "ok", "ready_since", "state", "until",
    )  # fmt: skip

    def __init__(self, now: float) -> None:
        self.state = State.READY
        #: when a back-off, a rest or the wait for a probe's answer ends
        self.until = 0.0
        #: ejections in a row: the exponent of the back-off
        self.level = 0
        self.consecutive = 0
        #: successes and failures of this half of the window
        self.ok = 0
        self.bad = 0
        self._ok_before = 0
        self._bad_before = 0
        self._rotated_at = now
        #: failures ever
        self.failures = 0
        self.last_failure_at = 0.0
        self.ready_since = now
        #: why it left READY last, whether it had stopped making tokens, and whether only another worker saw it
        self.cause = ""
        self.hung = False
        self.hearsay = False

    def failed(self, now: float) -> None:
        self.failures += 1
        self.consecutive += 1
        self.bad += 1
        self.last_failure_at = now

    def verdict(self, spec: EjectSpec, at_once: str | None) -> str | None:
        """Why it should be ejected now, or None. `at_once`: a fault for which one time is enough."""
        if at_once is not None:
            return at_once
        if self.consecutive >= spec.consecutive:
            return "consecutive"
        bad = self.bad + self._bad_before
        total = bad + self.ok + self._ok_before
        if total >= spec.minimum and bad >= spec.error_share * total:
            return "error_share"
        return None

    def rotate(self, now: float, window: float) -> None:
        """Two half-windows stand for a sliding one."""
        if now - self._rotated_at >= window / 2:
            self._ok_before, self._bad_before = self.ok, self.bad
            self.ok = self.bad = 0
            self._rotated_at = now

    def back_off(self, now: float, spec: EjectSpec, rng: Random) -> None:
        """Set `until` for an ejection and make the next one longer."""
        pause = min(spec.backoff_max, spec.backoff * 2.0 ** min(self.level, 30))
        self.until = now + pause * (1.0 - JITTER + 2 * JITTER * rng.random())
        self.level += 1

    def rest(self, now: float) -> None:
        self.until = now + min(REST_MAX, REST * 2.0 ** min(self.level, 30))
        self.level += 1

    def recover(self, now: float) -> None:
        """READY again: counts start afresh, `level` stays until it has proved itself."""
        self.consecutive = self.ok = self.bad = self._ok_before = self._bad_before = 0
        self.ready_since = now

    def forgive(self, now: float, spec: EjectSpec) -> None:
        """A window without failures after READY: the next ejection is a first one again."""
        if self.level and self.state is State.READY:
            quiet_since = max(self.ready_since, self.last_failure_at)
            if now - quiet_since >= max(spec.window, spec.backoff_max):
                self.level = 0


def may_be_out(members: int, max_share: float) -> int:
    """How many of `members` replicas may be ejected together: the floor."""
    return max(0, min(int(members * max_share + 1e-9), members - 1))
