"""Keeps a gateway's connection to its shared limits: connects, joins, says that it lives, and begins anew when lost."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import Callable
from typing import TYPE_CHECKING

from kilocard.core.errors import StoreError
from kilocard.stores import redis_scripts as scripts
from kilocard.stores.redis_link import RedisLink, Waiting, connect
from kilocard.stores.resp import Reply, ReplyError
from kilocard.tenancy.shared import known_of

if TYPE_CHECKING:
    from kilocard.stores.redis_limits import RedisLimits

log = logging.getLogger("kilocard.limits")

#: seconds after which a silent gateway counts as dead, and for which others are waited for after a loss
SILENT = 5.0
#: signs of life in that time
_BEATS = 5
#: seconds between two while others are waited for
_SETTLING = 0.1
#: seconds: the first and the longest pause before another attempt. Each is drawn between half and all of that
FIRST_PAUSE, LONGEST_PAUSE = 0.05, 1.0
#: seconds that a command of these may take; no request waits for them
PATIENCE = 1.0
#: seconds that a start waits for the store
START = 1.0
#: scopes in one command, so that none keeps the store busy for long
_AT_ONCE = 32
_LOOKS = 128


class _Load(Waiting):
    """SCRIPT LOAD in the middle of traffic: somebody has flushed the scripts."""

    __slots__ = ("done",)

    def __init__(self, command: bytes, until: float, done: Callable[[], None]) -> None:
        super().__init__(command, until)
        self.done = done

    def answered(self, reply: Reply) -> None:
        self.done()

    def lost(self, reason: str) -> None:
        self.done()


class Keeper:
    """One task."""

    def __init__(self, limits: RedisLimits, clock: Callable[[], float], rng: random.Random, silent: float) -> None:
        self._limits = limits
        self._clock = clock
        self._rng = rng
        self._silent = silent
        self._task: asyncio.Task[None] | None = None
        self._link: RedisLink | None = None
        self._session = 0
        #: something has to be done before the next beat
        self._wake = asyncio.Event()
        self._again = False
        self._loading = 0
        self._first = asyncio.Event()
        #: microseconds of the store's clock: who has been heard since has joined after the last loss
        self._since = 0
        #: monotonic seconds: no longer are others waited for
        self._settled_at = 0.0
        self._looked = 0
        self._pause = FIRST_PAUSE
        #: of an outage: since when, and how many decisions there were before
        self._lost_at: float | None = None
        self._before = 0
        self.problem = "not connected yet"

    async def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run())
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(START):
                await self._first.wait()

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        link, self._link = self._link, None
        if link is None:
            return
        limits = self._limits
        link.on_lost = lambda reason: None
        if not limits.ledger.leases:
            with contextlib.suppress(StoreError):
                await link.ask(scripts.leave(limits.gateway, self._session), PATIENCE)
        limits.away()
        link.drop("")

    # -- news from the hot path

    def join_again(self) -> None:
        """The store does not know this gateway (any more)."""
        if not self._again:
            self._again = True
            self._limits.joining(self._session)
            self._wake.set()

    def load_again(self, link: RedisLink) -> None:
        """The store has forgotten the scripts."""
        if not self._loading:
            self._loading = len(scripts.NAMES)
            until = self._clock() + PATIENCE
            for command in scripts.loads():
                link.send(_Load(command, until, self._loaded))

    def _loaded(self) -> None:
        self._loading -= 1

    # -- the task

    async def _run(self) -> None:
        while True:
            try:
                link = self._link = await connect(self._limits.url, self._lost)
                for command in scripts.loads():
                    await link.ask(command, PATIENCE)
                self._since = 0
                await self._join(link)
                while link.up:
                    await self._beat(link)
            except Exception as error:  # whatever it is: a later attempt may go well, and no attempt never does
                reason = error.message if isinstance(error, StoreError) else f"{type(error).__name__}, a fault"
                if self._link is not None:
                    self._link.drop(reason)
                self._lost(reason)
            self._limits.errors += 1
            self._first.set()
            self._link = None
            await asyncio.sleep(self._pause * self._rng.uniform(0.5, 1.0))
            self._pause = min(self._pause * 2, LONGEST_PAUSE)

    def _lost(self, reason: str) -> None:
        """Once or twice for each loss."""
        limits = self._limits
        limits.away()
        self._again = False
        self._loading = 0
        self._wake.set()
        if self._lost_at is not None:
            return
        self._lost_at = self._clock()
        self._before = limits.decided_alone
        self.problem = reason
        log.warning(
            "Shared limits (%s) can't be used: %s. Until they can, this gateway decides alone, with its part of each "
            "limit: one of %d.",
            limits.url.name, reason.rstrip("."), limits.gateways,
        )  # fmt: skip

    async def _join(self, link: RedisLink) -> None:
        """Say how this gateway stands. Raises StoreError."""
        limits = self._limits
        self._again = False
        self._session += 1
        limits.joining(self._session)
        _, seconds, micros = _words(await link.ask(scripts.begin(limits.gateway, self._session), PATIENCE), "B")
        limits.clock_is(int(seconds) + int(micros) / 1e6)
        if not self._since:
            self._since = int(seconds) * 1_000_000 + int(micros)
            self._settled_at = self._clock() + self._silent
        entries, said = limits.statement()
        second = limits.micros() // 1_000_000
        chunks = [
            scripts.declare(limits.gateway, self._session, entries[place : place + _AT_ONCE], second, limits.lasts)
            for place in range(0, len(entries), _AT_ONCE)
        ]
        for chunk in chunks:
            _words(await link.ask(chunk, PATIENCE), "S")
        limits.settling(link, said)

    async def _beat(self, link: RedisLink) -> None:
        """Until the next one is due. Raises StoreError."""
        limits = self._limits
        if self._again:
            self._since = 0
            await self._join(link)
        self._wake.clear()
        keys = list(limits.scopes)
        looked = keys[self._looked : self._looked + _LOOKS]
        self._looked = self._looked + _LOOKS if self._looked + _LOOKS < len(keys) else 0
        seats = limits.seats(looked)
        command = scripts.beat(
            limits.gateway, self._session, limits.micros(), int(self._silent * 1e6), self._since, seats
        )
        answer = await self._asked(link, command)
        if answer == b"J":
            self.join_again()
            return
        _, seconds, micros, alive, heard, *rest = _words(answer, "B")
        limits.clock_is(int(seconds) + int(micros) / 1e6)
        limits.ledger.heard(seats, known_of(list(map(int, rest)), len(seats)), int(seconds))
        if limits.state.value == "settling" and (int(heard) >= limits.gateways or self._clock() >= self._settled_at):
            limits.shared()
            self._back()
        if limits.state.value == "shared":
            limits.gateways = int(alive)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._silent / _BEATS if limits.state.value == "shared" else _SETTLING):
                await self._wake.wait()

    async def _asked(self, link: RedisLink, command: bytes) -> Reply:
        """An answer, also if the scripts have to be made known again."""
        for attempt in range(2):
            try:
                return await link.ask(command, self._limits.patience)
            except StoreError as error:
                if attempt or not error.message.startswith("NOSCRIPT"):
                    raise
                self.load_again(link)
        raise AssertionError("unreachable")

    def _back(self) -> None:
        self._pause = FIRST_PAUSE
        self.problem = ""
        self._first.set()
        if self._lost_at is not None:
            limits = self._limits
            log.info(
                "Shared limits (%s) are used again after %.1f s; %d requests were decided without them.",
                limits.url.name, self._clock() - self._lost_at, limits.decided_alone - self._before,
            )  # fmt: skip
            self._lost_at = None


def _words(reply: Reply, kind: str) -> list[str]:
    """Raises StoreError at anything else."""
    if isinstance(reply, bytes):
        words = reply.decode().split()
        if words and words[0] == kind:
            return words
    if isinstance(reply, ReplyError):
        raise StoreError(str(reply))
    raise StoreError("another session of this gateway has begun")
