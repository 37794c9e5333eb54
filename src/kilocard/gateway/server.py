"""A gateway from start to end: listeners, poller, discovery, and a stop that drains."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import time
from collections.abc import Callable
from typing import Any

from kilocard.core.errors import BackendError
from kilocard.core.replica import Change
from kilocard.dispatch.config import PoolFacts
from kilocard.dispatch.replay import Setup
from kilocard.engines.registry import engine
from kilocard.gateway.admin import Admin, OneGateway
from kilocard.gateway.admission import Admission
from kilocard.gateway.certificates import Certificates
from kilocard.gateway.config_status import export
from kilocard.gateway.dead_peers import notice_dead_peers, socket_below
from kilocard.gateway.decision_log import DecisionLog
from kilocard.gateway.downstream import ClientConnection
from kilocard.gateway.limit_state import LimitMeters, Standings, standings
from kilocard.gateway.limit_store import export as limit_store_meters
from kilocard.gateway.parts import Part
from kilocard.gateway.plane import Plane
from kilocard.gateway.reloader import Reloaded, Reloader
from kilocard.gateway.seat import ScrapedElsewhere, Scraping, Seat
from kilocard.gateway.sources import Sources, Wanted, nowhere
from kilocard.gateway.state import FleetMeters
from kilocard.gateway.taken import taken
from kilocard.gateway.takeover import judged
from kilocard.gateway.telemetry import Telemetry
from kilocard.gateway.tls_connection import TlsConnection
from kilocard.gateway.told import Told
from kilocard.net.server import Server
from kilocard.scrape.poller import Poller
from kilocard.spec.model import ClusterSpec, GatewaySpec
from kilocard.spec.units import address
from kilocard.tenancy.book import Book
from kilocard.tenancy.limits import LimitStore

log = logging.getLogger("kilocard.gateway")


#: what to do where the address is taken, and where the admin listener's is
ELSEWHERE = "Choose another address with gateway.listen or --port."
ADMIN_ELSEWHERE = "Choose another address for the admin listener with gateway.admin or --admin-port."
#: connections that the kernel keeps until we take them
BACKLOG = 4096


def address_in_use(host: str, port: int, error: OSError, way_out: str = ELSEWHERE) -> BackendError:
    return BackendError(
        f"can't listen on {host}:{port}: {error.strerror or error}. Is another gateway running? {way_out}",
        code="address_in_use",
    )


def nobody_is_there(gateway: GatewaySpec) -> None:
    """Raises BackendError: a gateway that was started twice must not take the records of the one that runs."""
    for listen, way_out in ((gateway.listen, ELSEWHERE), (gateway.admin, ADMIN_ELSEWHERE)):
        host, port = address(listen, lowest_port=0)
        if error := taken(host, port):
            raise address_in_use(host, port, error, way_out) from error


class Gateway:
    """One gateway process.

    `sources` gives those that a cluster file asks for; they report where replicas are, which are let in once they
    answer. A backend, which knows that its replicas are ready, calls `apply` itself. `describe` gives what a backend
    knows of its replicas for /state. `limit_store` keeps count of tenants' limits; None: this process does, alone.
    `reloader`, where it is set, follows the cluster file and answers POST /reload. Ports may be 0: `port` and
    `admin_port` say what was got. With a `seat` it is one of several workers: see seat.py.
    """

    def __init__(
        self,
        spec: ClusterSpec,
        *,
        sources: Callable[[ClusterSpec], Wanted] = nowhere,
        describe: Callable[[], dict[str, dict[str, Any]]] = dict,
        rng: random.Random | None = None,
        seat: Seat | None = None,
        limit_store: LimitStore | None = None,
    ) -> None:
        rng = rng or random.Random()  # noqa: S311  # balancing load is no secret
        loop = asyncio.get_running_loop()
        self._seat = seat
        # The dispatcher has chance to itself, from a known seed: only so can its decisions be replayed.
        setup = Setup(spec.models, self._facts(spec), rng.getrandbits(53), spec.gateway.scrape_interval)
        dispatcher = setup.dispatcher()
        self._poller: Scraping = (
            Poller(self._on_sample, interval=spec.gateway.scrape_interval, rng=rng, now=loop.time)
            if seat is None
            else ScrapedElsewhere()
        )
        self.spec = spec
        # Not the loop's clock: uvloop's stands still within a turn and counts in milliseconds.
        self.plane = Plane(
            spec, dispatcher, self._poller, Telemetry(list(spec.models)), time.monotonic, limit_store or Book()
        )
        FleetMeters(self.plane, self.plane.telemetry.registry)
        if seat is None:
            export(self.plane.config, self.plane.telemetry.registry)
        self._record: DecisionLog | None = None
        if spec.gateway.record is not None:
            if seat is None:
                nobody_is_there(spec.gateway)
            self._record = DecisionLog(spec.gateway.record, dispatcher, setup, self.plane.telemetry.registry)
            self.plane.handle = self._record.recording()
        #: others that live as long as this one
        self.parts: list[Part] = []
        self._started: list[Part] = []
        if seat is None:
            LimitMeters(self._standings, self.plane.telemetry.registry)
            limit_store_meters(
                self.plane.limiting.store, self.plane.telemetry.store_errors, self.plane.telemetry.registry
            )
        self.port = 0
        self.admin_port = 0
        self.reloader: Reloader | None = None
        #: who else has to hear of the cluster file that is in force, after the plane
        self.on_reload: list[Callable[[ClusterSpec], None]] = []
        tls = spec.gateway.tls
        self._certificates = None if tls is None else Certificates(tls, self.plane.telemetry.registry)
        if self._certificates is not None:
            self.parts.append(self._certificates)
        self._wanted = sources
        self._admission = Admission(spec, self.apply)
        self._sources = Sources(self._admission.apply, self._depart)
        self._listeners: list[asyncio.Server] = []
        #: replicas that a controller elsewhere keeps
        self._told = Told(self._admission.apply)
        #: what a controller in this process shows
        self.scaling: Callable[[], dict[str, Any] | None] = self._told.scaling
        overview = OneGateway(
            self.plane, lambda: self._admission.describe(self._told.describe() | describe()), lambda: self.scaling()
        )
        self._admin = Server(Admin(overview, lambda: self.reloader, self._told), idle_timeout=30.0)

    def _standings(self) -> Standings:
        plane = self.plane
        return standings(plane.spec.tenants, plane.limiting.store, plane.clock(), plane.limiting.wall())

    def _on_sample(self, *args: Any) -> None:
        self.plane.on_sample(*args)

    def apply(self, change: Change) -> None:
        """News of a replica."""
        self.plane.apply(change)

    def reload(self, spec: ClusterSpec) -> Reloaded:
        """Take another cluster file over, in one step of the event loop: connections stay, requests go on.

        What can't change while running keeps its value and is named in the answer. Raises KilocardError, with nothing
        changed, where the new cluster can't be built.
        """
        spec, changed, restart = judged(self.spec, spec)
        if changed:
            facts, wanted = self._facts(spec), self._wanted(spec)  # what may raise comes first
            patience = self.plane.timeouts.idle
            self.spec = self._admission.spec = spec
            self._poller.every(spec.gateway.scrape_interval)
            self.plane.reconfigure(spec, facts)
            if self.plane.timeouts.idle != patience:
                self._be_patient(self.plane.timeouts.idle)
            self._sources.follow(wanted)
        if self._certificates is not None and spec.gateway.tls is not None:
            self._certificates.declare(spec.gateway.tls)
        for tell in self.on_reload:  # files that it names may have changed, even if it has not
            tell(spec)
        return Reloaded(changed, restart)

    async def take_over(self, spec: ClusterSpec) -> Reloaded:
        """`reload`, for a Reloader."""
        return self.reload(spec)

    def _be_patient(self, seconds: float) -> None:
        """The kernel is to be as patient with clients as we are, from now on."""
        sockets = [sock for listener in self._listeners for sock in listener.sockets]
        sockets += [socket_below(connection.transport) for connection in self.plane.connections]
        for sock in sockets:
            with contextlib.suppress(OSError):  # it has just been closed
                if sock is not None:
                    notice_dead_peers(sock, seconds)

    def _facts(self, spec: ClusterSpec) -> dict[str, PoolFacts]:
        return {
            pool.name: PoolFacts(
                max_running=engine(pool.engine).max_running(pool),
                max_in_flight=pool.max_in_flight,
                shared=self._seat is not None,
                tenants=pool.tenants,
            )
            for pool in spec.pools.values()
        }

    def _depart(self, replica: str) -> None:
        self._admission.forget(replica)
        self.plane.depart(replica)

    async def start(self) -> None:
        """Listen and begin. Raises BackendError where an address can't be had (nothing is left open then)."""
        try:
            for part in self.parts:
                self._started.append(part)
                await part.start()
            if self._seat is None:
                await self._listen()
            else:
                loop = asyncio.get_running_loop()
                for sock in self._seat.sockets:
                    notice_dead_peers(sock, self.plane.timeouts.idle)
                    self._listeners.append(await loop.create_server(self._connection, sock=sock, backlog=BACKLOG))
        except BaseException:
            await self._close_parts()
            raise
        self.plane.start()
        self._poller.start()
        self._admission.start()
        self._sources.follow(self._wanted(self.spec))
        if self.reloader is not None and self.spec.gateway.watch:
            self.reloader.watch()

    async def _close_parts(self) -> None:
        while self._started:
            await self._started.pop().close()

    async def _listen(self) -> None:
        loop = asyncio.get_running_loop()
        host, port = address(self.spec.gateway.listen, lowest_port=0)
        try:
            listener = await loop.create_server(self._connection, host, port, backlog=BACKLOG, reuse_address=True)
        except OSError as error:
            raise address_in_use(host, port, error) from error
        self._listeners.append(listener)
        for sock in listener.sockets:
            notice_dead_peers(sock, self.plane.timeouts.idle)
        self.port = listener.sockets[0].getsockname()[1]
        try:
            admin_host, admin_port = address(self.spec.gateway.admin, lowest_port=0)
            self.admin_port = await self._admin.start(admin_host, admin_port, way_out=ADMIN_ELSEWHERE)
        except BackendError:
            listener.close()
            raise

    def _connection(self) -> ClientConnection | TlsConnection:
        certificates = self._certificates
        if certificates is None:
            return ClientConnection(self.plane)
        return TlsConnection(self.plane, certificates.context, certificates.handshakes)

    async def stop(self) -> None:
        """Fail readiness, keep serving for shutdown_delay, refuse new connections, let requests finish, end."""
        plane, gateway = self.plane, self.spec.gateway
        plane.draining = True
        if self.reloader is not None:
            await self.reloader.close()
        if gateway.shutdown_delay:
            await asyncio.sleep(gateway.shutdown_delay)
        for listener in self._listeners:
            listener.close()
        plane.close_idle()
        loop = asyncio.get_running_loop()
        end = loop.time() + gateway.drain
        told = 0.0
        while plane.busy and loop.time() < end:
            if plane.exchanges and loop.time() - told > 5.0:
                told = loop.time()
                log.info("draining: %d request(s) still running", len(plane.exchanges))
            await asyncio.sleep(0.05)
        if plane.exchanges:
            log.warning("%d request(s) did not finish within %g s and are ended", len(plane.exchanges), gateway.drain)
        await self._sources.close()
        await self._admission.close()
        await self._poller.close()
        await plane.close()
        await self._close_parts()
        await self._admin.close(grace=1.0)
        if self._record is not None:
            await asyncio.to_thread(self._record.close)
