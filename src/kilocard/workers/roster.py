"""Which replicas there are, and what each worker is told of them and of the other workers' loads there."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence

from kilocard.core.load import LoadSample
from kilocard.core.replica import Change, Endpoint, Found, Leaving, Lost
from kilocard.engines.registry import engine
from kilocard.scrape.poller import Poller
from kilocard.spec.model import ClusterSpec
from kilocard.workers import messages as words
from kilocard.workers.hand import Hand
from kilocard.workers.link import batch
from kilocard.workers.loads import Loads

#: seconds between a worker's report and the news to the others, so that several reports make one piece of news
NEWS = 0.01


class Roster:
    """`on_drained` hears that no worker has a request left on a draining replica, `on_failed_scrape` of which pool."""

    def __init__(self, spec: ClusterSpec, hands: Sequence[Hand]) -> None:
        self.spec = spec
        self.on_drained: Callable[[str], None] = lambda replica: None
        self.on_failed_scrape: Callable[[str], None] = lambda pool: None
        self._hands = hands
        self._rng = random.Random()  # noqa: S311  # order of replicas, no secret
        interval = spec.gateway.scrape_interval
        self._poller = Poller(self._on_sample, interval=interval, rng=self._rng, now=asyncio.get_running_loop().time)
        self._loads = Loads(_bounds(spec))
        self._endpoints: dict[str, Endpoint] = {}
        #: draining replicas, and why
        self._leaving: dict[str, str] = {}
        #: those of them that are forgotten then
        self._departing: set[str] = set()
        self._news_due = False

    def reload(self, spec: ClusterSpec) -> None:
        """Another cluster file is in force; replicas of pools that are no more in it depart by their sources."""
        self.spec = spec
        self._poller.every(spec.gateway.scrape_interval)
        for replica, pool_name, url in self._endpoints.values():
            pool = spec.pools.get(pool_name)
            if pool is not None:
                self._poller.add(replica, url, engine(pool.engine).metrics_pages(pool))
        self._loads.rebound(_bounds(spec), {endpoint.replica: endpoint.pool for endpoint in self._endpoints.values()})
        self._news_soon()

    def start(self) -> None:
        self._poller.start()

    async def close(self) -> None:
        await self._poller.close()

    # -- replicas

    def apply(self, change: Change) -> None:
        """News of a replica, from a source's door or from a backend. Repeated news is harmless."""
        if isinstance(change, Found):
            self._found(change.endpoint)
        elif isinstance(change, Leaving):
            if change.replica in self._endpoints:
                self._leaving[change.replica] = change.reason
            self._tell_all(words.Leaving(change.replica, change.reason))
        else:
            self._lost(change.replica)
            self._tell_all(words.Lost(change.replica, change.reason))

    def depart(self, replica: str) -> None:
        """The cluster file has it no more: running requests end, then it is forgotten."""
        if replica in self._endpoints:
            self._departing.add(replica)
            self.apply(Leaving(replica, "it is no longer in the cluster file"))

    def _found(self, endpoint: Endpoint) -> None:
        replica = endpoint.replica
        known = self._endpoints.get(replica)
        if known is not None and known != endpoint:
            self._lost(replica)
        pool = self.spec.pools.get(endpoint.pool)
        if pool is None:
            return  # last news of a source whose pool is gone from the cluster file
        if replica not in self._endpoints:
            self._endpoints[replica] = endpoint
            self._poller.add(replica, endpoint.url, engine(pool.engine).metrics_pages(pool))
            self._loads.found(replica, endpoint.pool)
        self._leaving.pop(replica, None)
        self._departing.discard(replica)
        for hand in self._hands:
            hand.drained.discard(replica)
        self._tell_all(words.Found(*endpoint))
        self._tell_news()

    def _lost(self, replica: str) -> None:
        self._leaving.pop(replica, None)
        self._departing.discard(replica)
        if self._endpoints.pop(replica, None) is not None:
            self._poller.remove(replica)
            self._loads.lost(replica)

    def _on_sample(self, replica: str, sample: LoadSample | None) -> None:
        if sample is not None:
            self._tell_all(words.Sampled(replica, sample))
        elif replica in self._endpoints:
            self.on_failed_scrape(self._endpoints[replica].pool)

    def scrape_error(self, replica: str) -> str | None:
        status = self._poller.status(replica)
        return None if status is None else status.error

    # -- workers

    def welcome(self, hand: Hand) -> list[words.Message]:
        """What a new worker is told first."""
        self._loads.join(hand.life)
        self._news_soon()
        endpoints = list(self._endpoints.values())
        # each worker in another order: policies that go in turn do not all begin at the same replica
        self._rng.shuffle(endpoints)
        leaving = [words.Leaving(replica, reason) for replica, reason in self._leaving.items()]
        return [*[words.Found(*endpoint) for endpoint in endpoints], *leaving]

    def reported(self, hand: Hand, report: words.Report) -> None:
        self._loads.report(hand.life, report.rows, report.read)
        self._news_soon()

    def left(self, hand: Hand) -> None:
        """Its line is cut, its connections to replicas with it."""
        self._loads.leave(hand.life)
        self._news_soon()
        for replica in list(self._leaving):
            self._look_whether_drained(replica)

    def drained(self, hand: Hand, replica: str) -> None:
        hand.drained.add(replica)
        self._look_whether_drained(replica)

    def _look_whether_drained(self, replica: str) -> None:
        if all(replica in hand.drained for hand in self._hands if hand.connected):
            departs = replica in self._departing
            self.on_drained(replica)
            if departs:
                self.apply(Lost(replica, "it is drained"))

    def _tell_all(self, message: words.Message) -> None:
        encoded = batch([message])
        for hand in self._hands:
            hand.say_encoded(encoded)

    def _news_soon(self) -> None:
        if not self._news_due:
            self._news_due = True
            asyncio.get_running_loop().call_later(NEWS, self._tell_news)

    def _tell_news(self) -> None:
        self._news_due = False
        number, news = self._loads.news()
        for hand in self._hands:
            rows = news.get(hand.life)
            if rows:
                hand.say(words.News(number, rows))


def _bounds(spec: ClusterSpec) -> dict[str, int]:
    return {name: pool.max_in_flight for name, pool in spec.pools.items() if pool.max_in_flight is not None}
