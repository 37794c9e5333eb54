"""Several workers spread requests as one does: their dispatchers on virtual time, joined by a link that takes 25 ms."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from kilocard.dispatch import events as ev
from kilocard.dispatch.config import PoolFacts
from kilocard.dispatch.dispatcher import Dispatcher
from kilocard.dispatch.instructions import Send
from kilocard.spec.model import ModelSpec
from kilocard.workers.loads import Loads
from kilocard.workers.reporting import Reporter

#: seconds: a worker's report and the supervisor's news together
LINK = 0.025


class Workers:
    """`count` dispatchers; what they send runs until it is told to end."""

    def __init__(self, count: int, replicas: int, bound: int | None = None, seed: int = 1) -> None:
        rng = Random(seed)
        facts = {"p": PoolFacts(max_in_flight=bound, shared=count > 1)}
        model = {"m": ModelSpec("m", {"p": 1})}
        self.dispatchers = [Dispatcher(model, facts, Random(rng.random())) for _ in range(count)]
        self.reporters = [Reporter(dispatcher.fleet) for dispatcher in self.dispatchers]
        self.loads = Loads({} if bound is None else {"p": bound})
        self.names = [f"r{number}" for number in range(replicas)]
        self.now = 0.0
        self.requests = 0
        self.most: Counter[str] = Counter()
        self.where: dict[int, tuple[int, str]] = {}
        for name in self.names:
            self.loads.found(name, "p")
        for worker, dispatcher in enumerate(self.dispatchers):
            self.loads.join(worker)
            for name in self.names:
                dispatcher.handle(ev.ReplicaUp(0.0, name, "p"))
        if count > 1:
            self.exchange()

    def exchange(self) -> None:
        """One turn of the link."""
        for worker, reporter in enumerate(self.reporters):
            self.loads.report(worker, reporter.changes(), reporter.read)
        self.now += LINK
        number, news = self.loads.news()
        for worker, rows in news.items():
            self.reporters[worker].read = number
            for row in rows:
                self.tell(worker, ev.PeerLoad(self.now, *row))

    def tell(self, worker: int, event: ev.Event) -> None:
        for answer in self.dispatchers[worker].handle(event):
            if isinstance(answer, Send):
                self.where[answer.request] = (worker, answer.replica)
        for name, count in self.running().items():
            self.most[name] = max(self.most[name], count)

    def arrive(self, worker: int) -> int:
        self.requests += 1
        self.tell(worker, ev.Arrived(self.now, self.requests, "m", 100, 100, 1e9))
        return self.requests

    def finish(self, request: int) -> None:
        worker, _ = self.where.pop(request)
        self.tell(worker, ev.Finished(self.now, request, 200, 100))

    def running(self) -> Counter[str]:
        return Counter(replica for _, replica in self.where.values())


@pytest.mark.parametrize("count", [1, 2, 4])
def test_32_requests_at_once_are_8_each(count: int) -> None:
    workers = Workers(count, replicas=4)
    for number in range(32):
        workers.arrive(number % count)
    assert sorted(workers.running().values()) == [8, 8, 8, 8]


@pytest.mark.parametrize("count", [2, 4])
@pytest.mark.parametrize("seed", range(5))
def test_and_near_8_where_the_kernel_gives_workers_unequal_parts(count: int, seed: int) -> None:
    workers = Workers(count, replicas=4, seed=seed)
    rng = Random(seed)
    for _ in range(32):
        workers.arrive(rng.randrange(count))
    assert max(workers.running().values()) - min(workers.running().values()) <= count


@pytest.mark.parametrize("count", [1, 2, 4])
def test_a_stream_of_slow_requests_is_even(count: int) -> None:
    """200 a second that take 1 s on 8 replicas: 25 each."""
    workers = Workers(count, replicas=8)
    rng = Random(7)
    ends: list[tuple[float, int]] = []
    unevenness = []
    for _ in range(120):
        for _ in range(5):
            request = workers.arrive(rng.randrange(count))
            ends.append((workers.now + rng.uniform(0.5, 1.5), request))
        for end, request in [entry for entry in ends if entry[0] <= workers.now]:
            ends.remove((end, request))
            workers.finish(request)
        workers.exchange()
        running = workers.running()
        unevenness.append(max(running.values()) - min(running[name] for name in workers.names))
    assert sum(unevenness[40:]) / 80 <= 2 + count / 2


def test_who_comes_later_makes_up_for_what_is_uneven() -> None:
    workers = Workers(2, replicas=4)
    for name in workers.names[1:]:
        workers.tell(0, ev.ReplicaGone(0.0, name))
    for _ in range(10):
        workers.arrive(0)  # all on r0: this worker knew no other
    workers.exchange()
    for _ in range(30):
        workers.arrive(1)
    assert sorted(workers.running().values()) == [10, 10, 10, 10]


@pytest.mark.parametrize("count", [1, 2, 4])
def test_a_bound_holds_for_all_together_and_all_of_it_is_used(count: int) -> None:
    workers = Workers(count, replicas=2, bound=5)
    rng = Random(3)
    for _ in range(100):
        for _ in range(3):
            workers.arrive(0 if rng.random() < 0.8 else rng.randrange(count))
        for request in rng.sample(sorted(workers.where), min(2, len(workers.where))):
            workers.finish(request)
        workers.exchange()
    assert workers.most == {"r0": 5, "r1": 5}
    for _ in range(10):
        workers.exchange()
    assert workers.running() == {"r0": 5, "r1": 5}


def test_a_worker_that_dies_takes_its_load_with_it() -> None:
    workers = Workers(2, replicas=2, bound=4)
    for _ in range(8):
        workers.arrive(0)
    for _ in range(4):
        workers.exchange()
    workers.where = {request: at for request, at in workers.where.items() if at[0] != 0}
    workers.loads.leave(0)
    workers.reporters[0].read = 0
    for _ in range(8):
        workers.arrive(1)
    _, news = workers.loads.news()
    for row in news[1]:
        workers.tell(1, ev.PeerLoad(workers.now, *row))
    assert workers.running() == {"r0": 4, "r1": 4}
