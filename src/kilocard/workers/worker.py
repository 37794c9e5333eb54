"""One worker: a gateway in its seat, and its end of the line to the supervisor.

A worker lives as long as the line. When that is cut (the supervisor has died), nobody can tell the worker of replicas
or count limits for it: it drains and exits. When it is cut while it drains, it exits at once.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import time
from collections.abc import Callable

import msgspec

from kilocard.core import replica as news
from kilocard.dispatch.events import PeerConvicted, PeerEjected, PeerLoad
from kilocard.dispatch.instructions import Convicted
from kilocard.gateway.seat import Seat
from kilocard.gateway.server import Gateway
from kilocard.gateway.signals import signals
from kilocard.gateway.state import state
from kilocard.metrics.merge import page
from kilocard.spec.model import ClusterSpec
from kilocard.spec.parse import parse
from kilocard.workers import messages as words
from kilocard.workers.link import Link
from kilocard.workers.link_limits import LinkLimits
from kilocard.workers.reporting import Reporter

#: seconds between two looks at what has changed; with many replicas so long that looking takes 1 % of the time
REPORT = 0.02
REPORT_SHARE = 0.01
#: counters are told each second, or so seldom that it takes 0.1 % of the time
COUNTS_SHARE = 0.001
#: a report is due at least this often, in seconds, whether anything has changed or not
HEARTBEAT = 1.0

Compose = Callable[[ClusterSpec, Seat], Gateway]
log = logging.getLogger("kilocard.workers")
_encode = msgspec.msgpack.Encoder().encode


class Worker:
    def __init__(self, compose: Compose) -> None:
        self._compose = compose
        self._link: Link[words.Down] = Link(words.Down, self._heard, self._cut)
        self._welcome: asyncio.Future[words.Welcome] = asyncio.get_running_loop().create_future()
        self._early: list[words.Down] = []
        self._stop = asyncio.Event()
        self._gateway: Gateway | None = None
        self._limits = LinkLimits(self._link.say, self._decided_alone)
        self._reporter: Reporter | None = None

    async def run(self, descriptor: int) -> None:
        """Until told to stop, or left alone."""
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, self._retire)
        for number in (signal.SIGINT, signal.SIGHUP):  # a terminal says them to all: they are the supervisor's business
            loop.add_signal_handler(number, lambda: None)
        await loop.create_unix_connection(lambda: self._link, sock=socket.socket(fileno=descriptor))
        welcome = await self._welcome
        spec = parse(welcome.spec)
        sockets = [socket.socket(fileno=number) for number in welcome.sockets]
        seat = Seat(sockets, self._limits)
        self._limits.workers = welcome.count
        gateway = self._gateway = self._compose(spec, seat)
        self._reporter = Reporter(gateway.plane.dispatcher.fleet)
        gateway.plane.on_drained = lambda replica: self._link.say(words.Drained(replica))
        gateway.plane.on_convicted = self._convicted
        await gateway.start()
        for message in self._early:
            self._heard(message)
        self._early.clear()
        self._link.say(words.Listening())
        reports = loop.create_task(self._report(gateway, self._reporter))
        await self._stop.wait()
        await gateway.stop()
        reports.cancel()
        self._tell_counts(gateway)
        self._link.close()
        await asyncio.sleep(0)

    def _convicted(self, news: Convicted) -> None:
        self._link.say(words.Convicted(news.fingerprint, news.model, list(news.replicas), news.ttl))

    # -- hearing

    def _decided_alone(self) -> None:
        if self._gateway is not None:
            self._gateway.plane.telemetry.store_errors.labels("supervisor").inc()

    def _retire(self) -> None:
        self._link.say(words.Retiring())
        self._stop.set()

    def _cut(self) -> None:
        if self._gateway is None or self._stop.is_set():
            os._exit(0)
        log.warning("worker %d: the supervisor is gone: running requests finish, then this process ends", os.getpid())
        self._limits.alone(self._gateway.plane.clock())
        self._stop.set()

    def _heard(self, message: words.Down) -> None:
        if type(message) is words.Granted:
            self._limits.granted(message)
            return
        if type(message) is words.Denied:
            self._limits.denied(message)
            return
        gateway, reporter = self._gateway, self._reporter
        if isinstance(message, words.Welcome):
            self._welcome.set_result(message)
            return
        if gateway is None or reporter is None:
            self._early.append(message)
            return
        plane = gateway.plane
        match message:
            case words.Sampled(replica, sample):
                plane.on_sample(replica, sample)
            case words.News(number, rows):
                reporter.read = number
                now = plane.clock()
                for row in rows:
                    plane.tell(PeerLoad(now, *row))
            case words.Found(replica, pool, url):
                gateway.apply(news.Found(news.Endpoint(replica, pool, url)))
            case words.Leaving(replica, reason):
                gateway.apply(news.Leaving(replica, reason))
            case words.Lost(replica, reason):
                gateway.apply(news.Lost(replica, reason))
            case words.Ejected(replica, cause):
                plane.tell(PeerEjected(plane.clock(), replica, cause))
            case words.Convicted(fingerprint, model, replicas, ttl):
                plane.tell(PeerConvicted(plane.clock(), fingerprint, model, tuple(replicas), ttl))
            case words.Ask(number, what):
                self._link.say(words.Told(number, msgspec.Raw(_encode(self._answer(gateway, what)))))
            case words.Reload(number, spec):
                # An error here ends the worker: the next one starts with this file. No two workers may serve by two.
                gateway.reload(parse(spec))
                self._link.say(words.Told(number, msgspec.Raw(_encode(None))))
            case words.Drain():
                self._stop.set()

    def _answer(self, gateway: Gateway, what: str) -> object:
        plane = gateway.plane
        if what == "metrics":
            return page(plane.telemetry.registry)
        if what == "signals":
            return signals(plane)
        return state(plane, plane.clock(), {})

    # -- saying

    async def _report(self, gateway: Gateway, reporter: Reporter) -> None:
        plane = gateway.plane
        said_at, counts_due, read, ready = 0.0, 0.0, 0, False
        while True:
            began = time.monotonic()
            rows = reporter.changes()
            for replica, cause in reporter.ejected():
                self._link.say(words.Ejected(replica, cause))
            beat = began - said_at >= HEARTBEAT
            if rows or beat or reporter.read != read or plane.ready is not ready:
                read, ready = reporter.read, plane.ready
                self._link.say(words.Report(read, rows, ready))
            if beat:
                said_at = began
            if began >= counts_due:
                cost = self._tell_counts(gateway)
                counts_due = began + max(HEARTBEAT, cost / COUNTS_SHARE)
            await asyncio.sleep(max(REPORT, (time.monotonic() - began) / REPORT_SHARE))

    def _tell_counts(self, gateway: Gateway) -> float:
        """Returns the seconds that it took: about 4 µs for each replica."""
        began = time.monotonic()
        counts = page(gateway.plane.telemetry.registry, gauges=False)
        self._link.say(words.Counts(msgspec.Raw(_encode(counts))))
        return time.monotonic() - began
