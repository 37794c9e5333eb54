"""The data plane: who is connected, what is under way, where replicas are; the driver of the dispatcher."""

from __future__ import annotations

import asyncio
import itertools
import secrets
from collections.abc import Callable, Mapping, Sequence
from time import perf_counter
from typing import TYPE_CHECKING, Final

from kilocard.core.errors import CapacityError, ClientError, KilocardError
from kilocard.core.load import LoadSample
from kilocard.core.replica import Change, Endpoint, Found, Leaving
from kilocard.dispatch.config import PoolFacts
from kilocard.dispatch.dispatcher import Dispatcher
from kilocard.dispatch.events import (
    Arrived,
    Event,
    Reconfigured,
    ReplicaDraining,
    ReplicaGone,
    ReplicaUp,
    Scraped,
    Tick,
)
from kilocard.dispatch.instructions import Convicted, Drained, Hedge, Hold, Instruction, Probe, Refuse, Send
from kilocard.gateway import trail
from kilocard.gateway.config_status import ConfigStatus
from kilocard.gateway.descriptors import most_clients
from kilocard.gateway.exchange import Exchange
from kilocard.gateway.limiting import Limiting
from kilocard.gateway.local_answer import LocalAnswer, turned_away
from kilocard.gateway.local_pages import answer_locally
from kilocard.gateway.mishap import contain
from kilocard.gateway.outbox import Outbox
from kilocard.gateway.phase import HELD
from kilocard.gateway.poison import say_convicted
from kilocard.gateway.probes import Probes
from kilocard.gateway.prompt_keys import PromptKeys
from kilocard.gateway.replica_names import ReplicaNames
from kilocard.gateway.request import Inbound
from kilocard.gateway.routes import INFERENCE
from kilocard.gateway.seat import Scraping
from kilocard.gateway.target import Target
from kilocard.gateway.telemetry import Telemetry
from kilocard.gateway.used import used
from kilocard.scrape.status import ScrapeStatus
from kilocard.spec.model import ClusterSpec
from kilocard.tenancy.access import ANYBODY, Access, allow
from kilocard.tenancy.limits import LimitStore
from kilocard.wire.failure import error_body
from kilocard.wire.fingerprint import fingerprint

if TYPE_CHECKING:
    from kilocard.gateway.arrival import Arrival
    from kilocard.gateway.downstream import ClientConnection
    from kilocard.gateway.tls_connection import TlsConnection
    from kilocard.gateway.tracing import Tracing

#: the dispatcher's and the time-outs' clock tick, in seconds
TICK: Final = 0.1
#: of so many requests one is timed while it is decided on
DECISIONS_TIMED: Final = 16


class Plane:
    """All state of one gateway process. Everything here runs on the event loop's thread."""

    def __init__(
        self,
        spec: ClusterSpec,
        dispatcher: Dispatcher,
        poller: Scraping,
        telemetry: Telemetry,
        clock: Callable[[], float],
        limit_store: LimitStore,
    ) -> None:
        self.clock = clock
        self.telemetry = telemetry
        self._other_meters = telemetry.model("")
        self.dispatcher = dispatcher
        self._wanted = dispatcher.quarantine.sizes
        #: the dispatcher's, or that of somebody who listens
        self.handle: Callable[[Event], Sequence[Instruction]] = dispatcher.handle
        self.limiting = Limiting(self, limit_store)
        self.tracing: Tracing | None = None  # spans for a collector
        self.names = ReplicaNames()  # what clients may call replicas
        self.draining = False
        #: the port is closed: who asks nothing now will not be answered any more
        self.leaving = False
        #: bytes of request bodies in memory now
        self.buffered = 0
        self.outbox = Outbox()
        self.connections: set[ClientConnection | TlsConnection] = set()
        self._most_clients = most_clients()
        self.exchanges: dict[int, Exchange] = {}
        self.targets: dict[str, Target] = {}
        #: who else wants to know of each request that has ended: (exchange, outcome, now)
        self.on_end: list[Callable[[Exchange, str, float], None]] = []
        #: and of each request that was answered without an exchange: (answer, now)
        self.on_answer: list[Callable[[LocalAnswer, float], None]] = []
        #: somebody wants to know clients' addresses: connections look for theirs when they open
        self.notes_peers = False
        #: who wants to know that a draining replica has no request left
        self.on_drained: Callable[[str], None] = lambda replica: None
        #: that a request waits and its model has no replica
        self.on_nobody: Callable[[], None] = lambda: None
        #: and that a body is refused from now on
        self.on_convicted: Callable[[Convicted], None] = lambda convicted: None
        self.started_at = clock()
        self.scrape_failures: dict[str, int] = {}  # scrapes that gave nothing, by pool
        self._poller = poller
        self._probes = Probes(self)
        self._numbers = itertools.count(1)
        #: requests that became an exchange
        self.received = 0
        self.id_prefix = secrets.token_hex(6).encode()
        #: replicas that the cluster file has no more: forgotten when their last request has ended
        self._departing: set[str] = set()
        self.config = ConfigStatus()
        self._tick_task: asyncio.Task[None] | None = None
        self._adopt(spec)

    def _adopt(self, spec: ClusterSpec) -> None:
        """All that comes from the cluster file, in one place: what is set here is what a reload changes."""
        gateway = spec.gateway
        self.spec = spec
        self.timeouts = gateway.timeouts
        self.limits = gateway.limits
        self.keep_alive_comment = gateway.keep_alive_comment
        self.access = Access(spec.tenants)
        self._meters = {model: self.telemetry.known(model) for model in spec.models}
        self._prompts = PromptKeys(spec.models, of_all=gateway.record is not None and gateway.record.prefixes)
        self._prompt_keys = self._prompts.models
        self._only_model = next(iter(spec.models)) if len(spec.models) == 1 else None
        for pool in spec.pools:
            self.scrape_failures.setdefault(pool, 0)

    def reconfigure(self, spec: ClusterSpec, facts: Mapping[str, PoolFacts]) -> None:
        """Another cluster file is in force from this line on. One step of the event loop; nobody is cut off."""
        self._adopt(spec)
        for target in self.targets.values():
            target.aim(spec)
            self._poller.add(target.endpoint.replica, target.endpoint.url, target.metrics_pages)
        for connection in self.connections:
            connection.bound(self.limits)
        self.tell(Reconfigured(self.clock(), spec.models, facts, spec.gateway.scrape_interval))

    # -- life

    def start(self) -> None:
        self._tick_task = asyncio.get_running_loop().create_task(self._tick())

    async def close(self) -> None:
        """Cut everything that is left."""
        await self._probes.close()
        if self._tick_task is not None:
            self._tick_task.cancel()
            await asyncio.gather(self._tick_task, return_exceptions=True)
        for exchange in list(self.exchanges.values()):
            exchange.shut_down()
        self.outbox.send()
        for connection in list(self.connections):
            connection.transport.close()
        for target in self.targets.values():
            target.connections.close()

    def close_idle(self) -> None:
        """Clients that wait for nothing need not wait for the end of the drain. Not before the port is closed: until
        then balancers send requests on the connections that they keep."""
        self.leaving = True
        for connection in list(self.connections):
            connection.check(self.clock())

    @property
    def busy(self) -> bool:
        """A request runs or is being sent, or a client has not taken all of its answer yet."""
        return bool(self.exchanges) or any(
            each.receiving or each.transport.get_write_buffer_size() for each in self.connections
        )

    async def _tick(self) -> None:
        second = 0
        while True:
            await asyncio.sleep(TICK)
            # After a pause (others had the processor, a virtual machine was moved) timers are the first to run, and
            # what has come meanwhile lies in the kernel: it is read before anybody is late. One turn reads it where
            # reads are callbacks of the poll (uvloop), two where they queue behind us (asyncio).
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            now = self.clock()
            self.tell(Tick(now))
            for exchange in list(self.exchanges.values()):
                exchange.check(now)
            second = (second + 1) % 10
            if second == 0:
                for connection in list(self.connections):
                    connection.check(now)
                for target in self.targets.values():
                    target.connections.prune(now)

    # -- replicas

    def apply(self, change: Change) -> None:
        """News from discovery or a backend. Repeated news is harmless."""
        now = self.clock()
        if isinstance(change, Found):
            self._found(change.endpoint, now)
        elif isinstance(change, Leaving):
            self.tell(ReplicaDraining(now, change.replica))
        else:
            self._lost(change.replica, now)

    def _found(self, endpoint: Endpoint, now: float) -> None:
        known = self.targets.get(endpoint.replica)
        if known is not None and known.endpoint != endpoint:
            self._lost(endpoint.replica, now)  # it moved: nothing of the old address may stay
            known = None
        if known is None and endpoint.pool in self.spec.pools:
            target = self.targets[endpoint.replica] = Target.at(endpoint, self.spec, self.clock, self.outbox)
            self._poller.add(endpoint.replica, endpoint.url, target.metrics_pages)
        self._departing.discard(endpoint.replica)
        self.names.found(endpoint)
        self.tell(ReplicaUp(now, endpoint.replica, endpoint.pool))

    def depart(self, replica: str) -> None:
        """The cluster file has it no more: no new requests, running ones end, then it is forgotten."""
        if replica in self.targets:
            self._departing.add(replica)
            self.tell(ReplicaDraining(self.clock(), replica))

    def _drained(self, replica: str) -> None:
        if replica in self._departing:
            self._lost(replica, self.clock())
        self.on_drained(replica)

    def _lost(self, replica: str, now: float) -> None:
        self._departing.discard(replica)
        target = self.targets.pop(replica, None)
        if target is not None:
            self._poller.remove(replica)
            target.connections.close()
        self.tell(ReplicaGone(now, replica))

    def on_sample(self, replica: str, sample: LoadSample | None) -> None:
        """The poller's report."""
        if sample is None:
            target = self.targets.get(replica)
            if target is not None:
                self.scrape_failures[target.endpoint.pool] += 1
        self.tell(Scraped(self.clock(), replica, sample))

    def scrape_status(self, replica: str) -> ScrapeStatus | None:
        return self._poller.status(replica)

    # -- the dispatcher's driver

    def tell(self, event: Event) -> None:
        """Whatever has happened: the dispatcher hears of it, and what it wants is done."""
        self.perform(event, self.handle(event))

    def perform(self, event: Event, instructions: Sequence[Instruction]) -> None:
        """What the dispatcher wants, in order.

        One instruction that fails, by a fault of ours, must not take the others with it: they are other requests'.
        """
        for instruction in instructions:
            try:
                if type(instruction) is Send:
                    exchange = self.exchanges[instruction.request]
                    if exchange.trail is not None:
                        exchange.trail.sent(exchange, instruction, event)
                    exchange.dispatch(instruction, self.targets[instruction.replica], event.now)
                elif type(instruction) is Refuse:
                    refused = self.exchanges.get(instruction.request)
                    if refused is not None:
                        if refused.trail is not None:
                            refused.trail.refused(refused, instruction.error, event)
                        refused.refuse(instruction.error)
                elif type(instruction) is Hedge:
                    hedged = self.exchanges[instruction.request]
                    send = Send(*instruction)
                    if hedged.trail is not None:
                        hedged.trail.hedged(hedged, send, event)
                    hedged.hedge(send, self.targets[instruction.replica], event.now)
                elif type(instruction) is Probe:
                    self._probes.begin(instruction)
                elif type(instruction) is Drained:
                    self._drained(instruction.replica)
                elif type(instruction) is Convicted:
                    say_convicted(self, instruction)
                    self.on_convicted(instruction)
                else:
                    assert type(instruction) is Hold  # the exchange is in that state already
                    held = self.exchanges.get(instruction.request)
                    if held is not None:
                        held.was_held = True
                        if held.trail is not None:
                            held.trail.held(held, instruction.reason, event)
                    if instruction.reason == "no_replica":
                        self.on_nobody()
            except Exception:
                contain(self, instruction)

    # -- clients

    def connected(self, connection: ClientConnection | TlsConnection) -> bool:
        """False where there are too many already."""
        self.connections.add(connection)
        return len(self.connections) <= min(self.limits.connections, self._most_clients)

    def disconnected(self, connection: ClientConnection | TlsConnection) -> None:
        self.connections.discard(connection)

    def new_request_id(self) -> bytes:
        """For answers that need no replica."""
        return b"kc-%b-%x" % (self.id_prefix, next(self._numbers))

    def serve(self, client: ClientConnection, arrival: Arrival) -> None:
        """One request. Every path ends in a response or an exchange that will give one."""
        route = INFERENCE.get(arrival.path)
        if route is None or arrival.method != b"POST":
            self.buffered -= len(arrival.body)
            answer_locally(self, client, arrival)
            return
        access = self.access
        tenant, inbound = ANYBODY, None
        try:
            if self.buffered > self.limits.buffered:
                raise CapacityError("The gateway's request buffers are full.", code="buffers_full")
            tenant = ANYBODY if access.open else access.who(arrival.head.authorization, arrival.head.api_key)
            inbound = Inbound(route, arrival, tenant)
            if inbound.named is None:
                if self._only_model is None:
                    raise ClientError(
                        "The request names no model. Put one of GET /v1/models in 'model'.",
                        code="model_required",
                        param="model",
                    )
                inbound.model = self._only_model
            if tenant is not ANYBODY:
                allow(tenant, inbound.model)
        except KilocardError as error:
            self.buffered -= len(arrival.body)
            client.write_error(error, error_body(error, anthropic=route.anthropic))
            turned_away(self, client, error, arrival, inbound, tenant.name)
            client.next_request(self.clock())
            return
        now = self.clock()
        number = next(self._numbers)
        model = inbound.model
        exchange = Exchange(self, client, inbound, self._meters.get(model) or self._other_meters, number, now)
        self.exchanges[number] = exchange
        self.received += 1
        client.current = exchange  # before it is dispatched: it may end at once
        if not client.request_id:
            client.request_id = exchange.request_id
        if arrival.head.receipt or self.tracing is not None:
            trail.begin(self, exchange)
        if tenant.limited:
            self.limiting.reserve(exchange, now)
        else:
            self.arrive(exchange, now)

    def arrive(self, exchange: Exchange, now: float) -> None:
        """It may run, as far as limits go: the dispatcher decides when and where."""
        exchange.phase = HELD
        inbound = exchange.inbound
        tenant = inbound.tenant
        tokens = (inbound.prompt_tokens, inbound.output_tokens)
        id, model = exchange.id, inbound.model
        mark = ""
        if self._wanted and len(inbound.body) in self._wanted:
            mark = fingerprint(model, inbound.body)
        if self._prompt_keys and model in self._prompt_keys:
            inbound.prefix = self._prompts.of(inbound)
        arrived = (
            now,
            id,
            model,
            *tokens,
            exchange.deadline,
            tenant.name,
            tenant.priority,
            tenant.weight,
            mark,
            inbound.stream,
            inbound.prefix,
        )
        event = tuple.__new__(Arrived, arrived)  # half the cost of Arrived(…), for each request
        if id % DECISIONS_TIMED:
            self.tell(event)
        else:
            begun = perf_counter()
            instructions = self.handle(event)
            self.telemetry.decision.observe(perf_counter() - begun)
            self.perform(event, instructions)

    def ended(self, exchange: Exchange, outcome: str, now: float) -> None:
        """Exactly once for each exchange: give back what it held, count it, free its connection."""
        del self.exchanges[exchange.id]
        self.buffered -= len(exchange.inbound.body)
        exchange.used = used(exchange, outcome)
        if exchange.grant is not None:
            self.limiting.settle(exchange, outcome, now)
        self.telemetry.ended(exchange, outcome, now)
        for tell in self.on_end:
            tell(exchange, outcome, now)
        exchange.client.next_request(now)

    @property
    def ready(self) -> bool:
        """Some replica can serve, or is started when somebody asks; and the gateway is not on its way out."""
        pools = self.dispatcher.fleet.pools.values()
        specs = self.spec.pools
        return not self.draining and any(
            pool.members > pool.out or (not pool.members and specs[pool.name].sleeps) for pool in pools
        )
