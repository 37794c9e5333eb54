"""What we believe of one replica's load, and how the belief is made.

Two sources. Our own requests in flight (`n`) are exact and instant. The engine's gauges R (running) and W
(waiting) count other gateways' requests too, but are old by up to a scrape interval, lag by seconds under load
and read 0 for the first ~18 s of a cold start (vllm#49538). So own counts lead, gauges correct:

    foreign  F = max(0, R + W − max(n at this sample, n at the sample before)) × fade(age)
    load       = n + F                          equal to R + W + dispatched since − finished since, where F > 0
    capacity C = max_running, or the R that was seen while requests waited, whichever is less; unknown: no bound
    waiting    = max(0, W + n − n at sample  (only if W > 0),  load − C)
                 but at most  load,  and at most  pending + F + max(0, W − pending at sample − F at sample)

`n` at the sample before is there because gauges lag: a falling load must not look like foreign load. `pending`
are own requests without a first byte: what streams can't be waiting. The last term keeps preempted requests,
which have streamed and wait again. `fade` is 1 up to 2 scrape intervals and falls to 0 at 5; then the sample
is stale and everything but own counts is forgotten: stale metrics never take a replica out.

Missing gauges are unknown, not 0: F is then 0 and waiting comes from `max_running` alone, if at all.

Where the gateway has several workers, what the others have there (`peers`) is known too, some 30 ms late. It counts
like our own: n above is both together, `pending` too; `foreign` is peers + F, and `prefill`, `decode` and `context`
include them. A reading that came just before news of peers had counted requests which we did not know yet, so F is
worked out again when that news comes.
"""

from __future__ import annotations

from typing import NamedTuple

from kilocard.core.load import LoadSample

#: scrape intervals: up to the first a sample counts in full, from the second on not at all
FADE_FROM = 2.0
STALE_AFTER = 5.0
#: KV use from which a queue is believed to be for want of memory, and below which it can't be (shares)
KV_TIGHT = 0.90
KV_ROOMY = 0.80
#: what a queue has shown of the capacity grows by this factor with each reading without one. If it were forgotten at
#: once, a whole hold queue could go to the first replica without a queue before its next reading
FORGET = 1.1

#: seconds that news of peers may be behind: twice what the link between workers takes
PEER_LAG = 0.06

UNBOUNDED = float("inf")


class Peers(NamedTuple):
    """What the other workers of this gateway have on one replica, summed, in the units of ReplicaLoad."""

    in_flight: int = 0
    pending: int = 0
    prefill: int = 0
    decode: int = 0
    context: int = 0


NO_PEERS = Peers()


class ReplicaLoad:
    """The load of one replica: own requests, gauges, and the estimate made of both. Counts are requests.

    `waiting` and `load` are kept up to date by each method. `prefill` are prompt tokens of pending requests,
    `decode` expected output tokens and `context` expected KV tokens of all requests in flight, ours and our peers'.
    `handicap` is a penalty in requests that health sets for a replica that fails but has to stay in.
    """

    __slots__ = (
        "_excess", "_heard_at", "_in_flight_at_sample", "_known_at_sample", "_known_before", "_learned", "_offset",
        "_pending_at_sample", "_queued_before", "_slack", "_unknown", "_unknown_at_sample", "_waiting_base", "context",
        "decode", "foreign", "handicap", "id", "in_flight", "interval", "kv_per_token", "kv_usage", "max_running",
        "peers", "pending", "prefill", "sample", "sampled_at", "stale", "waiting",
    )  # fmt: skip

    def __init__(self, id: str, max_running: int | None = None, interval: float = 1.0) -> None:
        self.id = id
        self.max_running = max_running
        #: seconds between two scrapes
        self.interval = interval
        self.in_flight = 0
        self.pending = 0
        self.prefill = 0
        self.decode = 0
        self.context = 0
        self.peers = NO_PEERS
        #: requests of others: peers, and who is seen in the gauges only
        self.foreign = 0.0
        self.waiting = 0.0
        self.handicap = 0.0
        #: the last reading, None when there is none or it is stale
        self.sample: LoadSample | None = None
        #: when that was true, and when we heard of it
        self.sampled_at = -UNBOUNDED
        self._heard_at = -UNBOUNDED
        self.stale = True
        self.kv_usage: float | None = None
        #: share of the KV cache that one token takes; 0: unknown
        self.kv_per_token = 0.0
        self._learned = UNBOUNDED
        self._queued_before = False
        #: at the last reading: our requests and those without a first byte; ours and peers' together, and the same
        #: at the reading before; requests that nobody of us knows of
        self._in_flight_at_sample = 0
        self._pending_at_sample = 0
        self._known_at_sample = 0
        self._known_before = 0
        self._unknown_at_sample = 0.0
        self._unknown = 0.0
        self._waiting_base = -UNBOUNDED
        self._excess = 0.0
        self._offset = -UNBOUNDED
        self._slack = 0.0
        self._settle()

    @property
    def load(self) -> float:
        """Requests in the engine by our estimate."""
        return self.in_flight + self.foreign

    @property
    def capacity(self) -> float:
        """Requests that it runs at once; infinite where unknown."""
        known = UNBOUNDED if self.max_running is None else float(self.max_running)
        return min(known, self._learned)

    @property
    def waiting_known(self) -> bool:
        """Whether `waiting` = 0 is a statement rather than ignorance."""
        return self.max_running is not None or (self.sample is not None and self.sample.waiting is not None)

    def runs_at_once(self, max_running: int | None) -> None:
        """Another bound is known of it now."""
        if max_running != self.max_running:
            self.max_running = max_running
            self._settle()

    def begin(self, prompt_tokens: int, output_tokens: int) -> None:
        """A request was sent to it."""
        n = self.in_flight = self.in_flight + 1
        pending = self.pending = self.pending + 1
        self.prefill += prompt_tokens
        self.decode += output_tokens
        self.context += prompt_tokens + (output_tokens >> 1)
        waiting = n + self._offset
        if waiting > 0.0:
            bound = pending + self._slack
            self.waiting = waiting if waiting < bound else bound
        else:
            self.waiting = 0.0

    def waiting_before(self) -> float:
        """`waiting` without the newest request: as it was before `begin`. For explanations."""
        return max(0.0, min(self.in_flight - 1 + self._offset, self.pending - 1 + self._slack))

    def first_content(self, prompt_tokens: int) -> None:
        """A pending request has its first byte: it is prefilled and runs."""
        pending = self.pending = self.pending - 1
        self.prefill -= prompt_tokens
        if self.waiting > 0.0:
            bound = pending + self._slack
            if self.waiting > bound:
                self.waiting = bound

    def end(self, prompt_tokens: int, output_tokens: int, pending: bool) -> None:
        """A request has ended there, however; `pending` as it was: without a first byte."""
        n = self.in_flight = self.in_flight - 1
        if pending:
            self.pending -= 1
            self.prefill -= prompt_tokens
        self.decode -= output_tokens
        self.context -= prompt_tokens + (output_tokens >> 1)
        waiting = n + self._offset
        if waiting > 0.0:
            bound = self.pending + self._slack
            self.waiting = waiting if waiting < bound else bound
        else:
            self.waiting = 0.0

    def scraped(self, now: float, sample: LoadSample) -> None:
        """A reading of its gauges has come. Its age counts from when it was true (`sample.at`), not from now."""
        self.sample = sample
        self._heard_at = now
        self.sampled_at = at = sample.at if sample.at < now else now
        self.stale = False
        self.kv_usage = sample.kv_usage
        if sample.kv_tokens:
            self.kv_per_token = 1.0 / sample.kv_tokens
        self._known_before = self._known_at_sample
        self._in_flight_at_sample = self.in_flight
        self._pending_at_sample = self.pending
        self._compare(sample)
        self._learn(sample.running, sample.waiting, sample.kv_usage)
        self._settle()
        if now - at > FADE_FROM * self.interval:
            self.grow_old(now)

    def shared(self, now: float, peers: Peers) -> None:
        """News of what other workers have there."""
        old = self.peers
        self.peers = peers
        self.prefill += peers.prefill - old.prefill
        self.decode += peers.decode - old.decode
        self.context += peers.context - old.context
        if self.sample is not None and now - self._heard_at <= PEER_LAG:
            self._compare(self.sample)
        self._settle()

    def _compare(self, sample: LoadSample) -> None:
        """What the reading shows beyond what we know of."""
        waiting = sample.waiting
        peers = self.peers
        known = self._known_at_sample = self._in_flight_at_sample + peers.in_flight
        unknown = max(0.0, (sample.running or 0.0) + (waiting or 0.0) - max(known, self._known_before))
        self._unknown = self._unknown_at_sample = unknown
        self._waiting_base = waiting - known if waiting else -UNBOUNDED
        self._excess = max(0.0, (waiting or 0.0) - self._pending_at_sample - peers.pending - unknown)

    def grow_old(self, now: float) -> bool:
        """Time has passed without a new reading. True when the estimate changed."""
        if self.stale:
            return False
        age = (now - self.sampled_at) / self.interval
        if age >= STALE_AFTER:
            self.stale = True
            self.sample = None
            self.kv_usage = None
            self._unknown = self._excess = 0.0
            self._learned = UNBOUNDED
            self._queued_before = False
            self._waiting_base = -UNBOUNDED
        elif age > FADE_FROM and self._unknown_at_sample:
            self._unknown = self._unknown_at_sample * (STALE_AFTER - age) / (STALE_AFTER - FADE_FROM)
        else:
            return False
        self._settle()
        return True

    def _learn(self, running: float | None, waiting: float | None, kv_usage: float | None) -> None:
        """Requests that wait while others run show what it can run: memory is full, whatever max_running says.

        One sample is no proof: a burst waits for a step or two. Two in a row, or a full KV cache, are.
        """
        if running is None or waiting is None:
            return
        tight = kv_usage is not None and kv_usage >= KV_TIGHT
        if waiting > 0:
            if running > 0 and (tight or self._queued_before):
                self._learned = running
        elif kv_usage is not None and kv_usage < KV_ROOMY:
            self._learned = FORGET * max(self._learned, running)
        elif self._learned < running:
            self._learned = running
        self._queued_before = waiting > 0

    def _settle(self) -> None:
        """Fold the rarely changing parts into `_offset` and `_slack`, so that a request costs two additions."""
        peers = self.peers
        foreign = self.foreign = self._unknown + peers.in_flight
        # no more can wait than are there: at most `foreign` above our own
        self._offset = max(min(self._waiting_base + peers.in_flight, foreign), foreign - self.capacity)
        self._slack = self._unknown + peers.pending + self._excess
        waiting = max(0.0, self.in_flight + self._offset)
        self.waiting = min(waiting, self.pending + self._slack)
