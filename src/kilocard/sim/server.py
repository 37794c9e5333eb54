"""One replica: the engine model on the cluster's clock, and what can happen to the process around it."""

from __future__ import annotations

from collections.abc import Callable
from math import inf, prod
from typing import TYPE_CHECKING

from kilocard.core.load import LoadSample
from kilocard.sim.fast import FastEngine
from kilocard.sim.kernel import Kernel

if TYPE_CHECKING:
    from kilocard.sim.flight import Attempt
    from kilocard.sim.scenario import PoolModel

#: told when a token leaves the engine
Tell = Callable[[float, "Attempt"], None]


class Server:
    """`first` and `finished` are told of an attempt's first and last token. Whoever sends looks first if it is `up`.

    A straggler's engine lives on a clock of its own that runs slower, one that hangs on a clock that stands.
    """

    __slots__ = (
        "_at", "_engine", "_finished", "_first", "_hung_until", "_kernel", "_local", "_past", "_rate", "_slow",
        "_token", "_wake_at", "_wake_local", "attempts", "born", "busy_s", "busy_since", "crashed", "draining",
        "held_s", "hung_since", "id", "known", "kv_tokens", "longest", "pool", "served", "unseen", "up", "up_s",
        "up_since",
    )  # fmt: skip

    def __init__(self, id: str, pool: PoolModel, kernel: Kernel, first: Tell, finished: Tell) -> None:
        self.id = id
        self.pool = pool
        self._kernel = kernel
        self._first = first
        self._finished = finished
        self.up = False
        self.draining = False
        #: it served once, so gateways know it
        self.known = False
        #: down after a crash
        self.crashed = False
        #: no step ends since then
        self.hung_since: float | None = None
        #: partitions from the scrapers that hold now
        self.unseen = 0
        #: by the engine's name for it
        self.attempts: dict[str, Attempt] = {}
        #: requests that it finished
        self.served = 0
        self.busy_s = self.up_s = self.up_since = 0.0
        self.busy_since: float | None = None
        #: since when it holds its GPUs, and how long it did
        self.born = kernel.now
        self.held_s = 0.0
        #: of engines that ended: preemptions, prompt tokens asked of the prefix cache, and found there
        self._past = (0, 0, 0)
        #: the engine's clock shows `_local` at `_at` and goes `_rate` seconds a second
        self._at = self._local = 0.0
        self._rate = 1.0
        self._slow: list[float] = []
        self._hung_until = -inf
        #: the wake that counts, in both times
        self._token = 0
        self._wake_at = self._wake_local = inf
        self._new_engine()

    def _new_engine(self) -> None:
        profile = self.pool.profile
        self._engine = FastEngine(
            profile, prefix_cache=self.pool.prefix_cache, async_scheduling=profile.steps_ahead >= 1
        )
        #: tokens of the longest request that it takes
        self.longest = min(self._engine.largest_request, profile.max_model_len)
        self.kv_tokens = float(self._engine.kv_tokens)

    # requests

    def enter(self, now: float, attempt: Attempt) -> None:
        """It is up, and the request not longer than `longest`."""
        local = self._local_at(now)
        self._run(now, local)
        request = attempt.flight.request
        self.attempts[attempt.name] = attempt
        self._engine.add(
            attempt.name,
            request.input_tokens,
            request.output_tokens,
            local,
            blocks=request.blocks,
            block_tokens=request.block_tokens,
        )
        if self.busy_since is None:
            self.busy_since = now
        self._schedule(now)

    def abort(self, now: float, attempt: Attempt) -> None:
        """Its client or its gateway is gone. Nothing if it has ended already."""
        if self.attempts.get(attempt.name) is not attempt:
            return
        self._advance(now)
        if self._engine.abort(attempt.name):  # else its last token is on its way, and it leaves with that
            del self.attempts[attempt.name]
            self._rest(now)
            self._schedule(now)

    def _local_at(self, now: float) -> float:
        return self._local + (now - self._at) * self._rate

    def _wake(self, now: float, token: int) -> None:
        if token != self._token:
            return
        local, self._wake_at, self._wake_local = self._wake_local, inf, inf
        # rounding must not put the engine's clock just before what it is woken for: it would be woken for ever
        shown = self._local + (now - self._at) * self._rate
        self._run(now, local if local > shown else shown)
        self._schedule(now)

    def _advance(self, now: float) -> None:
        self._run(now, self._local_at(now))

    def _run(self, now: float, local: float) -> None:
        attempts = self.attempts
        for event in self._engine.advance(local):
            kind = event[1]
            if kind == "first":
                self._first(now, attempts[event[2]])
            elif kind == "finished":
                self.served += 1
                self._finished(now, attempts.pop(event[2]))
        if not attempts:
            self._rest(now)

    def _schedule(self, now: float) -> None:
        """A wake that comes too early does no harm: only an earlier one needs another."""
        local = self._engine.next_at()
        if local == inf or not self._rate:
            return
        at = self._at + (local - self._local) / self._rate
        if at < self._wake_at:
            self._wake_at, self._wake_local = at, local
            self._token += 1
            self._kernel.at(at, self._wake, self._token)

    def _rest(self, now: float) -> None:
        if self.busy_since is not None and not self.attempts:
            self.busy_s += now - self.busy_since
            self.busy_since = None

    # the process

    def start(self, now: float) -> None:
        """It has loaded and serves."""
        self.up = self.known = True
        self.crashed = False
        self.up_since = now

    def crash(self, now: float) -> list[Attempt]:
        """The requests that are cut."""
        self._advance(now)
        cut = list(self.attempts.values())
        self.attempts.clear()
        self._rest(now)
        self.up = False
        self.crashed = True
        self.up_s += now - self.up_since
        self._past = self.counts()
        self._new_engine()
        self.hung_since, self._hung_until = None, -inf
        self._pace(now)
        return cut

    def hang(self, now: float, until: float) -> None:
        """No step ends any more until then (`go_on`). One that hangs already does so for as long as any has said."""
        self._hung_until = max(until, self._hung_until)
        if self.hung_since is None:
            self.hung_since = now
            self._pace(now)

    def go_on(self, now: float) -> None:
        """A hang is over; a later one, or another that is longer, may not be."""
        if self.hung_since is not None and now >= self._hung_until:
            self.hung_since = None
            self._pace(now)

    def slow_down(self, now: float, factor: float) -> None:
        """Every step takes so many times as long, what is left of the one that runs too. Several multiply."""
        self._slow.append(factor)
        self._pace(now)

    def speed_up(self, now: float, factor: float) -> None:
        """`slow_down` by this factor is over."""
        self._slow.remove(factor)
        self._pace(now)

    def _pace(self, now: float) -> None:
        """Its clock goes otherwise from now on."""
        self._advance(now)
        self._local, self._at = self._local_at(now), now
        self._rate = 0.0 if self.hung_since is not None else 1.0 / prod(self._slow)
        self._token += 1
        self._wake_at = self._wake_local = inf
        self._schedule(now)

    # what can be seen

    @property
    def running(self) -> int:
        return self._engine.running

    @property
    def waiting(self) -> int:
        return self._engine.waiting

    @property
    def kv_usage(self) -> float:
        return self._engine.kv_usage

    def sample(self, now: float) -> LoadSample | None:
        """What its metrics page says; None where there is no answer."""
        if not self.up or self.unseen:
            return None
        if self.busy_since is not None:
            self._advance(now)
        engine = self._engine
        counters = engine.counters
        return LoadSample(
            now,
            engine.running,
            engine.waiting,
            engine.kv_usage,
            prefix_queries_total=counters.prefix_queries,
            prefix_hits_total=counters.prefix_hits,
            kv_tokens=self.kv_tokens,
        )

    def answers(self, *, token: bool) -> bool:
        """A probe; `token`: one that asks for a token too."""
        return self.up and not (token and self.hung_since is not None)

    def counts(self) -> tuple[int, int, int]:
        """(preemptions, prompt tokens asked of the prefix cache, found there), since the start."""
        counters = self._engine.counters
        preempted, asked, found = self._past
        return preempted + counters.preempted, asked + counters.prefix_queries, found + counters.prefix_hits

    def close(self, now: float) -> None:
        """The accounts are closed, once: the simulation is over, or the replica is gone."""
        self.held_s = now - self.born
        if self.up:
            self.up_s += now - self.up_since
        if self.busy_since is not None:
            self.busy_s += now - self.busy_since
