"""One of the supervisor's hands: the worker process that fills a slot now, and the slot's history."""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import msgspec

from kilocard.metrics.merge import Page
from kilocard.workers import messages as words
from kilocard.workers.link import Link
from kilocard.workers.listening import Place, again
from kilocard.workers.restart import Restarts

#: seconds: from the start of a process until it listens; without a word from one that listens
START_TIMEOUT = 60.0
HUNG_AFTER = 10.0
#: seconds that a process may live on when its line is cut
GOODBYE = 5.0
#: why a process has ended that somebody told to
RETIRED = "retired"
#: seconds that an answer may take
PAGE_PATIENCE, RELOAD_PATIENCE = 1.0, 10.0
#: a slot that stays empty longer than this has no socket: connections would wait in it for nobody
KEEP_SOCKETS = 1.0

log = logging.getLogger("kilocard.workers")
_decode_page = msgspec.msgpack.Decoder(Page).decode
_decode = msgspec.msgpack.decode


class Boss(Protocol):
    """What a hand tells the supervisor."""

    def welcome(self, hand: Hand) -> list[words.Message]:
        """What a new worker has to know first."""

    def reported(self, hand: Hand, report: words.Report) -> None: ...

    def ejected(self, hand: Hand, news: words.Ejected) -> None: ...

    def convicted(self, hand: Hand, news: words.Convicted) -> None: ...

    def reserve(self, hand: Hand, ask: words.Reserve) -> None: ...

    def settle(self, hand: Hand, news: words.Settle) -> None: ...

    def drained(self, hand: Hand, replica: str) -> None: ...

    def cut(self, hand: Hand) -> None:
        """Its line is cut: whatever the worker held is free from this moment. Once for each life."""

    def died(self, hand: Hand, cause: str, lived: float) -> None:
        """Its process has ended, after `cut`."""


class Hand:
    """`slot` is fixed; `life` is another number for each process."""

    def __init__(self, slot: int, command: Sequence[str], boss: Boss) -> None:
        self.slot = slot
        self.life = -1
        self.sockets: list[socket.socket] = []
        self.restarts = Restarts()
        #: starting, serving, draining (all end), retiring (it alone ends), down
        self.state = "down"
        self.pid: int | None = None
        self.ready = False
        self.started_at = 0.0
        #: the last words on its counters, of this life
        self.page: Page = {}
        #: draining replicas on which this life has no request left
        self.drained: set[str] = set()
        self._command = command
        self._boss = boss
        self._places: list[Place] = []
        self._link: Link[words.Up] | None = None
        self._process: asyncio.subprocess.Process | None = None
        self._heard_at = 0.0
        self._asked: dict[int, asyncio.Future[bytes | None]] = {}
        self._numbers = 0
        self._task: asyncio.Task[None] | None = None
        self._hung = False
        self.listening = asyncio.Event()
        self.gone = asyncio.Event()

    # -- life

    async def start(self, life: int) -> None:
        """Start a process for this slot. Raises OSError where that can't be done."""
        self.life = life
        self.drained.clear()
        self.ready = self._hung = False
        self.listening.clear()
        self.gone.clear()
        if not self.sockets:
            self.sockets = again(self._places)
        ours, theirs = socket.socketpair()
        with theirs:
            numbers = [theirs.fileno(), *(sock.fileno() for sock in self.sockets)]
            try:
                # a session of its own: a terminal's Ctrl-C is for the supervisor, who drains its workers
                self._process = await asyncio.create_subprocess_exec(
                    *self._command, str(numbers[0]), stdin=asyncio.subprocess.DEVNULL, pass_fds=numbers,
                    start_new_session=True,
                )  # fmt: skip
            except BaseException:
                ours.close()
                raise
        self.state = "starting"
        self.pid = self._process.pid
        self.started_at = self._heard_at = time.monotonic()
        link: Link[words.Up] = Link(words.Up, self._heard, lambda: self._cut(link))
        self._link = link
        await asyncio.get_running_loop().create_unix_connection(lambda: link, sock=ours)
        for message in self._boss.welcome(self):
            link.say(message)
        self._task = asyncio.get_running_loop().create_task(self._reap(self._process))

    def take(self, sockets: list[socket.socket]) -> None:
        """These are the slot's, for all its lives."""
        self.sockets = sockets
        self._places = [(sock.family, sock.getsockname()) for sock in sockets]

    def close_sockets(self) -> None:
        for sock in self.sockets:
            sock.close()
        self.sockets = []

    def drain(self) -> None:
        self.state = "draining"
        self.say(words.Drain())

    def kill(self) -> None:
        _kill(self._process)

    def check(self, now: float) -> None:
        """About once a second: a process that says nothing hangs."""
        patience = START_TIMEOUT if self.state == "starting" else HUNG_AFTER
        if self._link is not None and not self._hung and now - self._heard_at > patience:
            self._hung = True
            log.error("worker %d (pid %s) has said nothing for %.0f s: killed", self.slot, self.pid, patience)
            self.kill()

    def _cut(self, link: Link[words.Up] | None) -> None:
        if link is None or self._link is not link:
            return  # it is known, or of an earlier life
        self._link = None
        self.ready = False
        for future in self._asked.values():
            if not future.done():
                future.set_result(None)
        self._boss.cut(self)
        # without its line it ends by itself; if it can't, it is ended
        asyncio.get_running_loop().call_later(GOODBYE, _kill, self._process)

    async def _reap(self, process: asyncio.subprocess.Process) -> None:
        status = await process.wait()
        link = self._link
        if link is not None:
            link.close()  # whoever has inherited the worker's end keeps nobody waiting
            self._cut(link)
        state, self.state = self.state, "down"
        self.gone.set()
        lived = time.monotonic() - self.started_at
        if self._hung:
            cause = "hung"
        elif status < 0:
            cause = "signal"
        else:
            cause = {"starting": "start", "retiring": RETIRED}.get(state, "exit")
        if cause == RETIRED:
            log.info("worker %d (pid %d) has ended as it was told to, and gets a successor", self.slot, process.pid)
        elif state != "draining":
            how = f"signal {signal.Signals(-status).name}" if status < 0 else f"exit code {status}"
            log.error("worker %d (pid %d) has ended after %.1f s: %s", self.slot, process.pid, lived, how)
        self._boss.died(self, cause, lived)

    # -- the line

    def say(self, message: words.Message) -> None:
        if self._link is not None:
            self._link.say(message)

    def say_encoded(self, batch: bytes) -> None:
        if self._link is not None:
            self._link.say_encoded(batch)

    async def ask(self, what: str) -> Any:
        """Its answer, or None where there is none in time."""
        if self.state == "starting":
            return None
        answer = await self._answer_to(lambda number: words.Ask(number, what), PAGE_PATIENCE)
        if answer is None:
            return None
        if what == "metrics":
            self.page = _decode_page(answer)
            return self.page
        return _decode(answer)

    async def reload(self, spec: dict[str, Any]) -> bool:
        """False: it has not said that this file is in force there."""
        return await self._answer_to(lambda number: words.Reload(number, spec), RELOAD_PATIENCE) is not None

    async def _answer_to(self, question: Callable[[int], words.Message], patience: float) -> bytes | None:
        if self._link is None:
            return None
        self._numbers += 1
        number = self._numbers
        future: asyncio.Future[bytes | None] = asyncio.get_running_loop().create_future()
        self._asked[number] = future
        self.say(question(number))
        try:
            return await asyncio.wait_for(future, patience)
        except TimeoutError:
            return None
        finally:
            self._asked.pop(number, None)

    def _heard(self, message: words.Up) -> None:
        if type(message) is words.Reserve:
            self._boss.reserve(self, message)
            return
        if type(message) is words.Settle:
            self._boss.settle(self, message)
            return
        self._heard_at = time.monotonic()
        match message:
            case words.Report():
                self.ready = message.ready
                self._boss.reported(self, message)
            case words.Counts(families):
                self.page = _decode_page(families)
            case words.Told(number, data):
                future = self._asked.get(number)
                if future is not None and not future.done():
                    future.set_result(bytes(data))
            case words.Ejected():
                self._boss.ejected(self, message)
            case words.Convicted():
                self._boss.convicted(self, message)
            case words.Drained(replica):
                self._boss.drained(self, replica)
            case words.Retiring():
                if self.state == "serving":
                    self.state = "retiring"
                    self.close_sockets()  # connections would wait in them for the successor
            case words.Listening():
                self.state = "serving"
                self.listening.set()

    @property
    def connected(self) -> bool:
        """It holds whatever it holds."""
        return self._link is not None

    @property
    def uptime(self) -> float:
        return time.monotonic() - self.started_at if self.state != "down" else 0.0


def _kill(process: asyncio.subprocess.Process | None) -> None:
    if process is not None and process.returncode is None:
        process.kill()
