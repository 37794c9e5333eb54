"""A cluster on virtual time: arrivals → gateways with the production dispatcher → engine models.

Everything is drawn from one seed, so the same scenario and workload give the same results to the last bit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from random import Random

from kilocard.core.errors import UsageError
from kilocard.core.load import LoadSample
from kilocard.dispatch import events as ev
from kilocard.dispatch.events import Fault
from kilocard.sim import faults
from kilocard.sim.autoscaling import Autoscaling
from kilocard.sim.collector import Collector
from kilocard.sim.flight import Attempt
from kilocard.sim.gateway import Gateway, Record
from kilocard.sim.kernel import Kernel
from kilocard.sim.scenario import TICK_S, PoolModel, Scenario
from kilocard.sim.server import Server
from kilocard.sim.timeline import Timeline
from kilocard.sim.turns import Turns
from kilocard.workload.request import WorkloadRequest

#: when the last request has come, looks become rarer by this share of the time since then, or a cluster that works off
#: what it got in a second would be looked at thousands of times
RARER = 0.02


class Cluster:
    """`play` once. `requests` are in order of at_s. `records`: for each gateway, who is told what it decides.
    `progress` is told now and then how many requests have not ended.
    """

    def __init__(
        self,
        scenario: Scenario,
        requests: Sequence[WorkloadRequest],
        *,
        records: Sequence[Record] = (),
        progress: Callable[[int], None] | None = None,
    ) -> None:
        self.scenario = scenario
        self.requests = requests
        self.kernel = Kernel()
        self.servers: dict[str, Server] = {}
        self.results = Collector(requests, self._over)
        self.timeline = Timeline()
        self._numbers = {pool.name: 0 for pool in scenario.pools}
        self._pools = {pool.name: pool for pool in scenario.pools}
        #: pools whose replicas may have numbers that none has at the beginning
        self._grow = {pool.name for pool in scenario.pools if pool.scaler is not None}
        self._grow.update(fault.target for fault in scenario.faults if isinstance(fault, faults.Start))
        self._chance = _random(scenario.seed, "arrivals")
        self._jitter = _random(scenario.seed, "scrapes")
        self._turns = Turns(requests)
        self._left = len(requests)
        self._last_s = requests[-1].at_s if requests else 0.0
        self._hop = scenario.signals.hop_s
        self.autoscaling = Autoscaling(self)
        self._progress = progress
        self.gateways = [
            Gateway(
                scenario,
                Random(gateway_seed(scenario.seed, number)),  # noqa: S311  # nothing secret is drawn
                self.kernel,
                self.servers,
                self.results,
                self._drained,
                records[number] if records else None,
            )
            for number in range(scenario.gateways)
        ]

    def play(self, until_s: float = float("inf")) -> Collector:
        """Until every request has ended, or until this moment; what still runs then is counted as unfinished."""
        kernel, scenario = self.kernel, self.scenario
        for pool in scenario.pools:
            for _ in range(pool.replicas):
                self._up(0.0, self._new(pool))
        for number, gateway in enumerate(self.gateways):
            kernel.at(TICK_S * (number + 1) / len(self.gateways), gateway.tick)
        for fault in scenario.faults:
            kernel.at(fault.at_s, self._fault, self._checked(fault))
        kernel.at(0.0, self._look)
        self.autoscaling.begin()
        self._next(self._turns.first())
        if self._left:
            kernel.run(until_s)
        for server in self.servers.values():
            server.close(kernel.now)
        self.results.close(kernel.now)
        return self.results

    # requests

    def _next(self, arrivals: Iterator[tuple[float, int]]) -> None:
        coming = next(arrivals, None)
        if coming is not None:
            self.kernel.at(coming[0], self._arrival, (coming[1], arrivals))

    def _arrival(self, now: float, what: tuple[int, Iterator[tuple[float, int]]]) -> None:
        id, arrivals = what
        self._next(arrivals)
        self._arrive(now, id)

    def _arrive(self, now: float, id: int) -> None:
        gateways = self.gateways
        gateway = gateways[0] if len(gateways) == 1 else gateways[int(self._chance.random() * len(gateways))]
        self.results.arrived(now, id)
        gateway.arrive(now, id, self.requests[id])

    def _over(self, now: float, id: int) -> None:
        """A request has ended, however; its session goes on."""
        self._left -= 1
        following = self._turns.ended(now, id)
        if following is not None:
            self.kernel.at(following[0], self._arrive, following[1])
        elif not self._left:
            self.kernel.stop()

    def _first(self, now: float, attempt: Attempt) -> None:
        self.kernel.at(now + self._hop, attempt.flight.gateway.first, attempt)

    def _finished(self, now: float, attempt: Attempt) -> None:
        self.kernel.at(now + self._hop, attempt.flight.gateway.finished, attempt)

    # replicas

    def _new(self, pool: PoolModel) -> Server:
        number = self._numbers[pool.name]
        self._numbers[pool.name] += 1
        server = Server(f"{pool.name}-{number}", pool, self.kernel, self._first, self._finished)
        self.servers[server.id] = server
        return server

    def add(self, now: float, pool: str) -> None:
        """One replica more, which serves when it has loaded."""
        model = self._pools[pool]
        self.kernel.at(now + model.load_s, self._up, self._new(model))

    def drain(self, now: float, server: Server) -> None:
        """Nothing new goes there; it leaves when what it runs has ended. One that loads leaves at once."""
        server.draining = True
        if not server.known:
            self._remove(now, server)
            return
        for gateway in self.gateways:
            gateway.tell(now, ev.ReplicaDraining(now, server.id))

    def grace_over(self, now: float, server: Server) -> None:
        """A draining replica is stopped, whatever still runs there."""
        if self.servers.get(server.id) is server:
            self._crash(now, server, None)
            self._remove(now, server)

    def _up(self, now: float, server: Server) -> None:
        """It serves for the first time, and every gateway hears of it and begins to read it."""
        if self.servers.get(server.id) is not server:
            return  # it was not waited for
        server.start(now)
        signals = self.scenario.signals
        for gateway in self.gateways:
            gateway.tell(now, ev.ReplicaUp(now, server.id, server.pool.name))
            self.kernel.at(now + self._jitter.random() * signals.scrape_s, self._scrape, (server, gateway))

    def _scrape(self, now: float, what: tuple[Server, Gateway]) -> None:
        server, gateway = what
        if self.servers.get(server.id) is not server:
            return
        signals = self.scenario.signals
        reading: tuple[str, LoadSample | None] = (server.id, server.sample(now))
        self.kernel.at(now + signals.delay_s, gateway.read, reading)
        pause = signals.scrape_s * (1.0 + signals.jitter * (2.0 * self._jitter.random() - 1.0))
        self.kernel.at(now + pause, self._scrape, what)

    def _drained(self, now: float, replica: str) -> None:
        """A gateway has nothing there any more; when all say so it is gone."""
        server = self.servers.get(replica)
        if server is not None and server.draining and not self._held_by_a_gateway(server):
            self._remove(now, server)

    def _held_by_a_gateway(self, server: Server) -> bool:
        return any(
            attempt is not None and attempt.server is server
            for gateway in self.gateways
            for flight in gateway.flights.values()
            for attempt in (flight.attempt, flight.second)
        )

    def _remove(self, now: float, server: Server) -> None:
        del self.servers[server.id]
        server.close(now)
        self.results.gone(server)
        if server.known:
            for gateway in self.gateways:
                gateway.tell(now, ev.ReplicaGone(now, server.id))

    # faults

    def _checked(self, fault: faults.Fault) -> faults.Fault:
        if isinstance(fault, faults.Start):
            if fault.target not in self._pools:
                raise UsageError(f"fault: there is no pool {fault.target!r}; there are {', '.join(self._pools)}")
            return fault
        pool, _, number = fault.target.rpartition("-")
        if not (fault.target in self.servers or (pool in self._grow and number.isdecimal())):
            some = ", ".join(list(self.servers)[:4]) or "none at the beginning"
            raise UsageError(f"fault: there is no replica {fault.target!r}; there are {some} …")
        return fault

    def _fault(self, now: float, fault: faults.Fault) -> None:
        if isinstance(fault, faults.Start):
            for _ in range(fault.replicas):
                self.add(now, fault.target)
            return
        server = self.servers.get(fault.target)
        if server is None:
            return  # gone, or not there yet
        match fault:
            case faults.Crash(_, _, restart_s):
                if server.up:
                    self._crash(now, server, restart_s)
            case faults.Hang(_, _, for_s):
                server.hang(now, now + for_s)
                self.kernel.at(now + for_s, lambda now, server: server.go_on(now), server)
            case faults.Slow(_, _, for_s, factor):
                server.slow_down(now, factor)
                self.kernel.at(now + for_s, lambda now, server: server.speed_up(now, factor), server)
            case faults.Partition(_, _, for_s):
                server.unseen += 1
                self.kernel.at(now + for_s, self._seen, server)
            case faults.Drain():
                self.drain(now, server)

    def _crash(self, now: float, server: Server, restart_s: float | None) -> None:
        cut = server.crash(now)
        for attempt in cut:
            self.kernel.at(now + self.scenario.signals.hop_s, attempt.flight.gateway.cut, (attempt, Fault.RESET))
        if restart_s is not None:
            self.kernel.at(now + restart_s + server.pool.load_s, self._restarted, server)

    def _restarted(self, now: float, server: Server) -> None:
        """The gateways find out by their probes."""
        if self.servers.get(server.id) is server:
            server.start(now)

    def _seen(self, now: float, server: Server) -> None:
        server.unseen -= 1

    # the report's curves

    def _look(self, now: float, _: None = None) -> None:
        held = sum(gateway.dispatcher.held for gateway in self.gateways)
        self.timeline.look(now, list(self.servers.values()), held)
        if self._progress is not None:
            self._progress(self._left)
        self.kernel.at(now + max(self.scenario.sample_s, RARER * (now - self._last_s)), self._look)


def gateway_seed(seed: int, number: int) -> int:
    """What a gateway's dispatcher draws from, as a decision log's header has it."""
    return _random(seed, f"gateway {number}").getrandbits(32)


def _random(seed: int, use: str) -> Random:
    """Streams of chance that do not disturb each other. A text seeds by its SHA-512, whatever PYTHONHASHSEED is."""
    return Random(f"{seed} {use}")  # noqa: S311  # nothing secret is drawn
