"""A bound that many workers share holds at every moment, however late their news are."""

from __future__ import annotations

from collections import deque

from hypothesis import given
from hypothesis import strategies as st

from kilocard.workers.shares import Shares, fair


def test_nobody_gets_more_than_it_can_use_while_another_wants() -> None:
    assert fair(8, {0: 1, 1: 9, 2: 9}) == {0: 1, 1: 4, 2: 3}


def test_what_is_left_over_is_slack_for_all() -> None:
    assert fair(8, {0: 1, 1: 1}) == {0: 4, 1: 4}
    assert fair(1, {0: 0, 1: 0, 2: 1}) == {0: 0, 1: 0, 2: 1}


def test_a_slot_that_all_want_goes_round() -> None:
    had = {worker for turn in range(3) for worker, share in fair(1, {5: 2, 6: 2, 9: 2}, turn).items() if share}
    assert had == {5, 6, 9}


@given(st.integers(0, 50), st.dictionaries(st.integers(0, 8), st.integers(0, 60), min_size=1))
def test_fair_shares_sum_up_to_the_bound(bound: int, demands: dict[int, int]) -> None:
    shares = fair(bound, demands)
    assert sum(shares.values()) == bound
    if sum(demands.values()) >= bound:
        assert all(shares[worker] <= demands[worker] for worker in demands)
        wanting = [shares[worker] for worker in demands if shares[worker] < demands[worker]]
        assert not wanting or max(shares.values()) - min(wanting) <= 1


def test_a_share_moves_only_when_its_worker_has_said_so() -> None:
    shares = Shares(4)
    shares.join(0)
    assert shares.settle(1) == [0]
    shares.report(0, 4, 4, read=1)
    shares.join(1)
    shares.report(1, 4, 0, read=0)
    assert shares.settle(2) == [0]
    assert (shares.share(0), shares.share(1)) == (2, 0)
    shares.report(0, 4, 3, read=2)  # one of its four has ended
    assert shares.settle(3) == [1]
    assert (shares.share(0), shares.share(1)) == (2, 1)
    shares.leave(0)
    shares.settle(4)
    assert shares.share(1) == 4


def test_old_words_do_not_take_back_what_was_given_since() -> None:
    shares = Shares(4)
    shares.join(0)
    shares.join(1)
    shares.settle(1)  # two each, on their way
    shares.report(0, 0, 0, read=0)  # said before that was heard
    shares.report(1, 9, 2, read=1)
    shares.settle(2)
    assert (shares.share(0), shares.share(1)) == (0, 2), "worker 0 may have taken two by now"
    shares.report(0, 2, 2, read=1)
    shares.settle(3)
    assert shares.share(1) == 2
    shares.report(0, 0, 0, read=3)
    shares.settle(4)
    assert shares.share(1) == 4


class _Worker:
    """A worker at the end of a slow line: it takes what its share allows, and keeps what it has."""

    def __init__(self) -> None:
        self.share = self.has = self.held = self.read = 0
        self.inbox: deque[tuple[int, int]] = deque()
        self.outbox: deque[tuple[int, int, int]] = deque()

    def take(self) -> None:
        while self.held and self.has < self.share:
            self.held -= 1
            self.has += 1

    def hear(self) -> None:
        if self.inbox:
            self.share, self.read = self.inbox.popleft()
            self.take()

    def say(self) -> None:
        self.outbox.append((self.has + self.held, max(self.share, self.has), self.read))


STEPS = st.lists(
    st.tuples(st.sampled_from(["arrive", "end", "hear", "say", "listen", "settle", "die"]), st.integers(0, 2)),
    max_size=120,
)


@given(st.integers(0, 7), STEPS)
def test_the_bound_is_never_passed(bound: int, steps: list[tuple[str, int]]) -> None:
    shares = Shares(bound)
    workers: dict[int, _Worker] = {}
    ids = {0: 0, 1: 1, 2: 2}
    fresh = 3
    for id in ids.values():
        shares.join(id)
        workers[id] = _Worker()
    number = 0

    def settle() -> None:
        nonlocal number
        number += 1
        for id in shares.settle(number):
            workers[id].inbox.append((shares.share(id), number))

    def listen(id: int) -> None:
        if workers[id].outbox:
            shares.report(id, *workers[id].outbox.popleft())

    for what, slot in steps:
        id = ids[slot]
        worker = workers[id]
        if what == "arrive":
            worker.held += 1
            worker.take()
        elif what == "end" and worker.has:
            worker.has -= 1
            worker.take()
        elif what == "hear":
            worker.hear()
        elif what == "say":
            worker.say()
        elif what == "listen":
            listen(id)
        elif what == "settle":
            settle()
        elif what == "die":
            del workers[id]
            shares.leave(id)
            ids[slot] = fresh
            workers[fresh] = _Worker()
            shares.join(fresh)
            fresh += 1
        assert sum(worker.has for worker in workers.values()) <= bound

    # and when everybody has had its say, nothing is kept back while somebody waits
    for _ in range(6):
        for id, worker in workers.items():
            while worker.inbox:
                worker.hear()
            worker.say()
            while worker.outbox:
                listen(id)
        settle()
    for worker in workers.values():
        while worker.inbox:
            worker.hear()
    running = sum(worker.has for worker in workers.values())
    assert running <= bound
    assert running == bound or not any(worker.held for worker in workers.values())
