"""The supervisor of several workers on one port. It has no data plane: it starts workers and tells them what they need.

discovery ─▶ door ─▶ ┐                       ┌─▶ worker 0 ─┐
poller (each page    ├─ supervisor ── line ──┼─▶ worker 1  ├─ SO_REUSEPORT ◀── clients
once, whatever N) ─▶ ┘      │                └─▶ worker N ─┘
                         admin: one /metrics, /state, /readyz
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from kilocard.core.errors import BackendError
from kilocard.gateway.admin import Admin
from kilocard.gateway.admission import Admission
from kilocard.gateway.config_status import ConfigStatus
from kilocard.gateway.parts import Part
from kilocard.gateway.reloader import Reloaded, Reloader
from kilocard.gateway.server import ADMIN_ELSEWHERE
from kilocard.gateway.sources import Sources, Wanted, nowhere
from kilocard.gateway.takeover import judged
from kilocard.gateway.told import Told
from kilocard.net.server import Server
from kilocard.spec.dump import dump
from kilocard.spec.model import ClusterSpec
from kilocard.spec.units import address
from kilocard.tenancy.limits import LimitStore
from kilocard.workers import messages as words
from kilocard.workers.convictions import Convictions
from kilocard.workers.hand import KEEP_SOCKETS, RETIRED, START_TIMEOUT, Hand
from kilocard.workers.limit_desk import LimitDesk
from kilocard.workers.listening import listen
from kilocard.workers.pages import Pages
from kilocard.workers.roster import Roster

#: after gateway.drain: workers have this long to say goodbye
LAST_WORDS = 5.0

log = logging.getLogger("kilocard.workers")


class Supervisor:
    """`command` starts a worker; the number of its end of the line is added as the last argument.

    `limit_store` keeps count for all workers; `sources` and `describe` as for Gateway.
    """

    def __init__(
        self,
        spec: ClusterSpec,
        *,
        workers: int,
        command: Sequence[str],
        limit_store: LimitStore,
        sources: Callable[[ClusterSpec], Wanted] = nowhere,
        describe: Callable[[], dict[str, dict[str, Any]]] = dict,
    ) -> None:
        self.spec = spec
        self.port = 0
        self.admin_port = 0
        self.draining = False
        self._wanted = sources
        self.hands = [Hand(slot, command, self) for slot in range(workers)]
        self.roster = Roster(spec, self.hands)
        self.apply = self.roster.apply
        self._admission = Admission(spec, self.apply)
        self._sources = Sources(self._admission.apply, self._depart)
        self.desk = LimitDesk(limit_store, spec.tenants, time.monotonic)
        self.convictions = Convictions()
        self.config = ConfigStatus()
        #: follows the cluster file and answers POST /reload, where it is set
        self.reloader: Reloader | None = None
        #: replicas that a controller in another process keeps
        self.told = Told(self._admission.apply)
        self.pages = Pages(self, lambda: self._admission.describe(self.told.describe() | describe()))
        #: others that live as long as this one
        self.parts: list[Part] = []
        self._started: list[Part] = []
        #: told of another cluster file when it is in force
        self.on_reload: list[Callable[[ClusterSpec], None]] = []
        self._admin = Server(Admin(self.pages, lambda: self.reloader, self.told), idle_timeout=30.0)
        self._lives = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._starting = True

    # -- life

    async def start(self) -> None:
        """Bind, start all workers and wait until each listens. Raises BackendError; nothing is left running then."""
        host, port = address(self.spec.gateway.listen, lowest_port=0)
        try:
            for part in self.parts:
                self._started.append(part)
                await part.start()
            groups = listen(host, port, len(self.hands))
            for hand, sockets in zip(self.hands, groups, strict=True):
                hand.take(sockets)
            self.port = groups[0][0].getsockname()[1]
            admin_host, admin_port = address(self.spec.gateway.admin, lowest_port=0)
            self.admin_port = await self._admin.start(admin_host, admin_port, way_out=ADMIN_ELSEWHERE)
            await asyncio.gather(*[self._start(hand) for hand in self.hands])
            await self._all_listen()
        except BaseException:
            await self._end()
            raise
        self._starting = False
        self.roster.start()
        self._admission.start()
        self._spawn(self._watch())
        self._sources.follow(self._wanted(self.spec))
        if self.reloader is not None and self.spec.gateway.watch:
            self.reloader.watch()

    async def _all_listen(self) -> None:
        listening = [asyncio.ensure_future(hand.listening.wait()) for hand in self.hands]
        gone = [asyncio.ensure_future(hand.gone.wait()) for hand in self.hands]
        try:
            pending = set(listening)
            end = time.monotonic() + START_TIMEOUT
            while pending and not any(wait.done() for wait in gone) and time.monotonic() < end:
                await asyncio.wait({*pending, *gone}, timeout=1.0, return_when=asyncio.FIRST_COMPLETED)
                pending = {wait for wait in pending if not wait.done()}
            if pending:
                raise BackendError(
                    f"{len(pending)} of {len(self.hands)} workers did not start: see their lines above. "
                    "Try --workers 1 to find out whether it is the cluster file.",
                    code="worker_failed",
                )
        finally:
            for wait in (*listening, *gone):
                wait.cancel()

    async def _start(self, hand: Hand) -> None:
        self._lives += 1
        await hand.start(self._lives)

    async def take_over(self, spec: ClusterSpec) -> Reloaded:
        """Another cluster file, judged already, for all workers. Returns when each has said that it is in force.

        A worker that does not say so is replaced: no two workers may go on by two files. Raises KilocardError, with
        nothing changed, where its sources can't be built.
        """
        spec, changed, restart = judged(self.spec, spec)
        wanted = self._wanted(spec)
        self.spec = self._admission.spec = spec
        self.desk.adopt(spec.tenants)
        for tell in self.on_reload:
            tell(spec)
        # first the workers, then what follows from it for replicas: they hear both in this order
        told = [hand.reload(dump(self._spec_of(hand))) for hand in self.hands]
        waiting = [asyncio.ensure_future(each) for each in told]
        await asyncio.sleep(0)
        self.roster.reload(spec)
        self._sources.follow(wanted)
        for hand, done in zip(self.hands, await asyncio.gather(*waiting), strict=True):
            if not done and hand.connected:
                log.error("worker %d has not taken the cluster file over: it is replaced", hand.slot)
                hand.kill()
        return Reloaded(changed, restart)

    def _depart(self, replica: str) -> None:
        self._admission.forget(replica)
        self.roster.depart(replica)

    async def stop(self) -> None:
        """As one gateway stops: readiness fails, workers drain, what is left then is cut."""
        self.draining = True
        if self.reloader is not None:
            await self.reloader.close()
        gateway = self.spec.gateway
        for hand in self.hands:
            hand.drain()
        if gateway.shutdown_delay:
            await asyncio.sleep(gateway.shutdown_delay)
        for hand in self.hands:
            hand.close_sockets()
        waits = [asyncio.ensure_future(hand.gone.wait()) for hand in self.hands if hand.pid is not None]
        if waits:
            await asyncio.wait(waits, timeout=gateway.drain + LAST_WORDS)
        await self._end()

    def kill(self) -> None:
        """This process ends without waiting, and so do its workers, which drain where only their line is cut."""
        for hand in self.hands:
            hand.kill()

    async def _end(self) -> None:
        self.draining = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for hand in self.hands:
            hand.kill()
            hand.close_sockets()
        await self._sources.close()
        await self._admission.close()
        await self.roster.close()
        await asyncio.gather(*[hand.gone.wait() for hand in self.hands if hand.pid is not None])
        await self._admin.close(grace=1.0)
        while self._started:
            await self._started.pop().close()

    def _spawn(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(1.0)
            now = time.monotonic()
            for hand in self.hands:
                hand.check(now)

    # -- workers (Boss)

    def welcome(self, hand: Hand) -> list[words.Message]:
        self.desk.join(hand.life)
        sockets = [sock.fileno() for sock in hand.sockets]
        return [
            words.Welcome(hand.slot, dump(self._spec_of(hand)), sockets, len(self.hands)),
            *self.roster.welcome(hand),
            *self.convictions.now(time.monotonic()),
        ]

    def _spec_of(self, hand: Hand) -> ClusterSpec:
        """The cluster with the ports that were got where it asks for any; each worker has a decision log of its own."""
        gateway = self.spec.gateway
        listen = f"{gateway.listen.rpartition(':')[0]}:{self.port}"
        admin = f"{gateway.admin.rpartition(':')[0]}:{self.admin_port}"
        record = gateway.record and replace(gateway.record, path=f"{gateway.record.path}.w{hand.slot}")
        return replace(self.spec, gateway=replace(gateway, listen=listen, admin=admin, record=record))

    def reported(self, hand: Hand, report: words.Report) -> None:
        self.roster.reported(hand, report)

    def ejected(self, hand: Hand, news: words.Ejected) -> None:
        self._pass_on(hand, news)

    def convicted(self, hand: Hand, news: words.Convicted) -> None:
        self.convictions.add(news, time.monotonic())
        self._pass_on(hand, news)

    def _pass_on(self, hand: Hand, news: words.Message) -> None:
        for other in self.hands:
            if other is not hand:
                other.say(news)

    def drained(self, hand: Hand, replica: str) -> None:
        self.roster.drained(hand, replica)

    def reserve(self, hand: Hand, ask: words.Reserve) -> None:
        self.desk.reserve(hand.life, ask, hand.say)

    def settle(self, hand: Hand, news: words.Settle) -> None:
        self.desk.settle(hand.life, news.number, news.tokens)

    def cut(self, hand: Hand) -> None:
        self.desk.leave(hand.life)
        self.roster.left(hand)
        self.pages.cut(hand)

    def died(self, hand: Hand, cause: str, lived: float) -> None:
        if self.draining or self._starting:
            return
        if cause == RETIRED:
            self._spawn(self._restart(hand, 0.0))
            return
        self.pages.died(cause)
        pause = hand.restarts.died(lived)
        if hand.restarts.looping:
            log.error(
                "worker %d has died %d times in a row; the next start is in %g s, the other workers serve on",
                hand.slot, hand.restarts.in_a_row, pause,
            )  # fmt: skip
        if pause > KEEP_SOCKETS:
            hand.close_sockets()
        self._spawn(self._restart(hand, pause))

    async def _restart(self, hand: Hand, pause: float) -> None:
        while True:
            await asyncio.sleep(pause)
            try:
                await self._start(hand)
            except OSError as error:
                pause = hand.restarts.died(0.0)
                log.error("worker %d can't be started: %s; again in %g s", hand.slot, error, pause)
            else:
                return
