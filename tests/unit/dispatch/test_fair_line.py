"""Fair sharing in one line: what is proved in docs/fairness.md, held against random stories."""

from __future__ import annotations

from itertools import combinations
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from kilocard.dispatch.events import Arrived
from kilocard.dispatch.fair import SHARES, SIZES, Line, cost, size
from kilocard.dispatch.request import LiveRequest
from kilocard.dispatch.topology import Model, Pool, Route
from kilocard.routing.queue_depth import DECODE_PER_REQUEST
from kilocard.spec.model import ModelSpec

#: tokens; the dearest request that these tests make
MOST = 5120
DEAREST = cost(MOST, MOST)
#: and of each size, by its share
DEAREST_OF = {name: min(4.0 ** (step + 1), DEAREST) / SHARES[name] for step, name in enumerate(SIZES)}
#: a line looks at neither
MODEL, ROUTE = Model(ModelSpec("m", {"p": 1})), Route(Pool("p"))
TENANTS = {"a": 1.0, "b": 1.0, "c": 2.0, "d": 0.5}


class Maker:
    def __init__(self) -> None:
        self.made = 0

    def __call__(self, tenant: str, prompt: int = 0, output: int = 0, *, weight: float | None = None) -> LiveRequest:
        self.made += 1
        if weight is None:
            weight = TENANTS.get(tenant, 1.0)
        asked = Arrived(0.0, self.made, "m", prompt, output, 1e9, tenant, 1, weight)
        request = LiveRequest(self.made, MODEL, ROUTE, prompt, output, output, asked)
        request.bills = None
        return request


def size_of(request: LiveRequest) -> str:
    return size(cost(request.prompt, request.output))


def served(line: Line) -> LiveRequest:
    request = line.head()
    line.serve(request)
    return request


def order(line: Line) -> str:
    return "".join(served(line).asked.tenant for _ in range(line.count))


def test_turn_by_turn_where_requests_are_alike() -> None:
    line, make = Line(), Maker()
    for tenant in "aaaabb":
        line.join(make(tenant))
    assert order(line) == "ababaa"


def test_first_come_first_served_within_a_tenant_where_sizes_are_alike() -> None:
    line, make = Line(), Maker()
    for output in (300, 10, 200):
        line.join(make("a", 10, output))
    assert [served(line).id for _ in range(3)] == [1, 2, 3]


def test_tokens_are_shared_not_requests() -> None:
    """a's requests cost 9, b's cost 3."""
    line, make = Line(), Maker()
    for _ in range(40):
        line.join(make("a", 0, 8 * 512))
        line.join(make("b", 0, 2 * 512))
    assert order(line)[:40].count("a") == 10


def test_a_weight_of_two_is_twice_the_tokens() -> None:
    line, make = Line(), Maker()
    for _ in range(60):
        line.join(make("b"))
        line.join(make("c"))
    assert order(line)[:60].count("c") == 40


def test_a_flood_does_not_push_back_another_tenants_only_request() -> None:
    line, make = Line(), Maker()
    for _ in range(10_000):
        line.join(make("a"))
    for _ in range(500):
        served(line)
    line.join(make("b", MOST, MOST))
    assert "b" in [served(line).asked.tenant for _ in range(2)]


def test_idle_time_earns_nothing() -> None:
    """b comes late and does not get what a had meanwhile."""
    line, make = Line(), Maker()
    for _ in range(300):
        line.join(make("a"))
    for _ in range(100):
        served(line)
    for _ in range(100):
        line.join(make("b"))
    assert order(line)[:100].count("b") == 50


def test_who_comes_back_has_saved_up_nothing_either() -> None:
    """a is still known from before, at a tag that all others have passed long ago."""
    line, make = Line(), Maker()
    line.join(make("a"))
    for _ in range(300):
        line.join(make("b"))
    for _ in range(100):
        served(line)
    for _ in range(100):
        line.join(make("a"))
    assert order(line)[:100].count("a") == 50


def test_a_step_in_size_is_four_times_the_cost() -> None:
    assert [size(cost) for cost in (1.0, 3.99, 4.0, 15.99, 16.0, 63.99, 64.0, 255.99, 256.0, 1e6)] == [
        name for name in SIZES for _ in range(2)
    ]


def test_a_short_request_does_not_wait_behind_long_ones_of_its_own_tenant() -> None:
    line, make = Line(), Maker()
    for _ in range(100):
        line.join(make("a", MOST, 0))
    for _ in range(10):
        served(line)
    short = make("a", 10, 10)
    line.join(short)
    assert short in [served(line) for _ in range(2)]


def test_sizes_of_a_tenant_share_its_turns_by_cost() -> None:
    """The long ones cost 17, the short ones 1 and have four times the share: 68 short ones for each long one."""
    line, make = Line(), Maker()
    for _ in range(400):
        line.join(make("a", 4096, 0))
        line.join(make("a"))
    came = [served(line).prompt for _ in range(345)]
    assert came.count(4096) == 5


def test_a_tenant_with_several_sizes_gets_no_more() -> None:
    """Each request of a tenant costs 9 on average, and each tenant has half of what comes free."""
    line, make = Line(), Maker()
    for number in range(200):
        line.join(make("a", 0, 0 if number % 2 else 16 * 512))
        line.join(make("b", 0, 8 * 512))
    had = {"a": 0.0, "b": 0.0}
    for _ in range(150):
        request = served(line)
        had[request.asked.tenant] += cost(0, request.output)
    assert abs(had["a"] - had["b"]) <= 17 + 9


def test_a_size_that_was_idle_has_saved_up_nothing() -> None:
    line, make = Line(), Maker()
    line.join(make("a", 4096, 0))
    for _ in range(800):
        line.join(make("a"))
    for _ in range(400):
        served(line)
    for _ in range(20):
        line.join(make("a", 4096, 0))
    assert [served(line).prompt for _ in range(345)].count(4096) <= 6, "68 short ones for each, but for one more"


def test_what_sizes_were_charged_is_put_right() -> None:
    """Of two sizes by what is declared, both use 10 tokens; each ends before the next is sent. Shares are 2 to 1."""
    line, make = Line(), Maker()
    for _ in range(300):
        line.join(make("a", 0, 4096))
        line.join(make("a", 0, 10))
    said = []
    for _ in range(200):
        request = served(line)
        said.append(request.output)
        line.settle(request, 10)
    assert abs(2 * said.count(4096) - said.count(10)) <= 4


def test_a_tenant_that_waits_no_more_forgets_what_its_sizes_were_charged() -> None:
    line, make = Line(), Maker()
    line.join(make("b"))
    long = make("a", 4096, 0)
    line.join(long)
    for _ in range(2):
        line.join(make("b", 0, 8 * 512))
    while line.length("a"):
        served(line)
    line.settle(long, 0)  # its size is forgotten, its tenant is not
    first, second = make("a", 4096, 0), make("a")
    line.join(first)
    line.join(second)
    while (request := served(line)).asked.tenant != "a":
        pass
    assert request is first


def test_retries_go_first_and_cost_nothing_more() -> None:
    line, make = Line(), Maker()
    line.join(make("a"))
    again = make("b")
    again.attempts = 1
    line.join(again)
    assert line.head() is again
    assert line.serve(again) == 0.0
    assert order(line) == "a"


def test_declaring_4096_and_using_10_is_not_punished() -> None:
    """Both use 10 tokens a request; a says 4,096 each time, b says 10. One runs at a time."""
    line, make = Line(), Maker()
    for _ in range(400):
        line.join(make("a", 0, 4096))
        line.join(make("b", 0, 10))
    counts = {"a": 0, "b": 0}
    for _ in range(200):
        request = served(line)
        counts[request.asked.tenant] += 1
        line.settle(request, 10)
    assert abs(counts["a"] - counts["b"]) <= 2


def test_declaring_1_and_using_4096_gains_nothing() -> None:
    line, make = Line(), Maker()
    for _ in range(400):
        line.join(make("a", 0, 1))
        line.join(make("b", 0, 4096))
    counts = {"a": 0, "b": 0}
    for _ in range(200):
        request = served(line)
        counts[request.asked.tenant] += 1
        line.settle(request, 4096)
    assert abs(counts["a"] - counts["b"]) <= 2


def test_what_was_charged_before_an_idle_time_is_not_given_back_after_it() -> None:
    """a's overcharge was forgotten when it came back, so its correction must not become credit."""
    line, make = Line(), Maker()
    long = make("a", 0, 10 * 512)
    line.join(long)
    for _ in range(200):
        line.join(make("b"))
    while line.length("a"):
        served(line)
    for _ in range(50):  # far beyond what a was charged
        served(line)
    for _ in range(50):
        line.join(make("a"))
    line.settle(long, 0)
    assert order(line)[:20].count("a") <= 11


def test_with_nobody_waiting_everything_is_forgotten() -> None:
    line, make = Line(), Maker()
    for number in range(1000):
        line.join(make(f"t{number}"))
    while line.count:
        served(line)
    assert line.entries == 0 and line.weight == 0.0 and line.longest() is None


def test_flows_of_tenants_that_come_and_go_take_no_memory() -> None:
    """INV-11."""
    line, make = Line(), Maker()
    for number in range(20_000):
        line.join(make("a"))
        line.join(make(f"t{number}"))
        served(line)
        served(line)
        line.join(make("a"))
    assert line.entries < 300


def test_the_longest_flow() -> None:
    line, make = Line(), Maker()
    made = [make(tenant) for tenant in "aabbbc"]
    for request in made:
        line.join(request)

    def longest() -> str | None:
        flow = line.longest()
        return None if flow is None else flow.name

    assert longest() == "b"
    line.drop(made[4])
    assert longest() == "b", "as long as a, and it came to that length last"
    line.drop(made[3])
    assert longest() == "a"
    for request in made:
        line.drop(request)
    assert longest() is None


class FairSharing(RuleBasedStateMachine):
    """Any order of joining, serving, leaving and settling. The truth is kept aside and compared."""

    def __init__(self) -> None:
        super().__init__()
        self.line = Line()
        self.make = Maker()
        self.waiting: dict[str, list[LiveRequest]] = {tenant: [] for tenant in TENANTS}
        self.real: dict[int, int] = {}  # output tokens, unknown to the line until the end
        self.running: list[LiveRequest] = []
        #: real cost ÷ weight served to each tenant; |estimate − real| ÷ weight under way, now and at most
        self.had = dict.fromkeys(TENANTS, 0.0)
        self.wrong = dict.fromkeys(TENANTS, 0.0)
        self.most_wrong = dict.fromkeys(TENANTS, 0.0)
        #: `had` of both when a pair of tenants began to wait together
        self.since: dict[tuple[str, str], tuple[float, float]] = {}
        #: the same of a tenant's sizes, by tenant, then size
        self.sizes = {tenant: dict.fromkeys(SIZES, 0.0) for tenant in TENANTS}
        self.sizes_wrong = {tenant: dict.fromkeys(SIZES, 0.0) for tenant in TENANTS}
        self.sizes_most_wrong = {tenant: dict.fromkeys(SIZES, 0.0) for tenant in TENANTS}
        self.sizes_since: dict[tuple[str, str, str], tuple[float, float]] = {}

    @rule(
        tenant=st.sampled_from(sorted(TENANTS)),
        prompt=st.integers(0, MOST),
        declared=st.integers(0, MOST),
        real=st.integers(0, MOST),
        count=st.integers(1, 6),
    )
    def join(self, tenant: str, prompt: int, declared: int, real: int, count: int) -> None:
        for _ in range(count):
            request = self.make(tenant, prompt, declared)
            self.real[request.id] = real
            self.line.join(request)
            self.waiting[tenant].append(request)
        self._pairs()

    @precondition(lambda self: self.line.count)
    @rule(count=st.integers(1, 12))
    def serve(self, count: int) -> None:
        for _ in range(min(count, self.line.count)):
            request = served(self.line)
            tenant = request.asked.tenant
            own = size_of(request)
            first = next(held for held in self.waiting[tenant] if size_of(held) == own)
            assert first is request, "first come, first served within a size of a tenant"
            self.waiting[tenant].remove(request)
            weight = TENANTS[tenant]
            real = self.real[request.id]
            self.sizes[tenant][own] += cost(request.prompt, real) / SHARES[own]
            wrong = self.sizes_wrong[tenant]
            wrong[own] += abs(real - request.output) * DECODE_PER_REQUEST / SHARES[own]
            self.sizes_most_wrong[tenant][own] = max(self.sizes_most_wrong[tenant][own], wrong[own])
            self.had[tenant] += cost(request.prompt, real) / weight
            self.wrong[tenant] += abs(real - request.output) * DECODE_PER_REQUEST / weight
            self.most_wrong[tenant] = max(self.most_wrong[tenant], self.wrong[tenant])
            self.running.append(request)
            self._pairs()
            self._bound()

    @precondition(lambda self: self.running)
    @rule(choice=st.randoms(use_true_random=False))
    def settle(self, choice: Random) -> None:
        request = self.running.pop(choice.randrange(len(self.running)))
        tenant = request.asked.tenant
        wrong = abs(self.real[request.id] - request.output) * DECODE_PER_REQUEST
        self.wrong[tenant] -= wrong / TENANTS[tenant]
        self.sizes_wrong[tenant][size_of(request)] -= wrong / SHARES[size_of(request)]
        self.line.settle(request, self.real[request.id])
        self._bound()

    @precondition(lambda self: self.line.count)
    @rule(choice=st.randoms(use_true_random=False))
    def leave(self, choice: Random) -> None:
        tenant = choice.choice([tenant for tenant, held in self.waiting.items() if held])
        request = self.waiting[tenant].pop(choice.randrange(len(self.waiting[tenant])))
        assert self.line.drop(request)
        assert not self.line.drop(request)
        self._pairs()

    def _pairs(self) -> None:
        for one in TENANTS:
            for other in TENANTS:
                if one < other:
                    if self.waiting[one] and self.waiting[other]:
                        self.since.setdefault((one, other), (self.had[one], self.had[other]))
                    else:
                        self.since.pop((one, other), None)
        for tenant, had in self.sizes.items():
            held = {size_of(request) for request in self.waiting[tenant]}
            for pair in combinations(SIZES, 2):
                if held.issuperset(pair):
                    self.sizes_since.setdefault((tenant, *pair), (had[pair[0]], had[pair[1]]))
                else:
                    self.sizes_since.pop((tenant, *pair), None)

    def _bound(self) -> None:
        for (one, other), (before_one, before_other) in self.since.items():
            gap = abs((self.had[one] - before_one) - (self.had[other] - before_other))
            dearest = DEAREST / TENANTS[one] + DEAREST / TENANTS[other]
            errors = 3 * (self.most_wrong[one] + self.most_wrong[other])
            assert gap <= dearest + errors + 1e-6, f"INV-18: {one} and {other}: {gap} > {dearest} + {errors}"
        for (tenant, one, other), (before_one, before_other) in self.sizes_since.items():
            had, wrong = self.sizes[tenant], self.sizes_most_wrong[tenant]
            gap = abs((had[one] - before_one) - (had[other] - before_other))
            most = DEAREST_OF[one] + DEAREST_OF[other] + 3 * (wrong[one] + wrong[other])
            assert gap <= most + 1e-6, f"INV-22: {one} and {other} of {tenant}: {gap} > {most}"

    @invariant()
    def nothing_is_lost(self) -> None:
        held = {tenant: len(requests) for tenant, requests in self.waiting.items() if requests}
        assert self.line.count == sum(held.values())
        assert self.line.by_tenant() == held
        assert self.line.waiting == len(held)
        longest = self.line.longest()
        assert (0 if longest is None else len(longest.requests)) == max(held.values(), default=0)
        assert abs(self.line.weight - sum(TENANTS[tenant] for tenant in held)) < 1e-9


TestFairSharing = FairSharing.TestCase
TestFairSharing.settings = settings(max_examples=20, stateful_step_count=30, deadline=None)


@settings(max_examples=50, deadline=None)
@given(
    held=st.lists(st.tuples(st.sampled_from(sorted(TENANTS)), st.integers(0, MOST)), min_size=1, max_size=60),
    before=st.integers(0, 40),
)
def test_a_newcomer_waits_for_one_request_of_each_other_tenant_at_most(
    held: list[tuple[str, int]], before: int
) -> None:
    """INV-19, no starvation: however much others have held, and however dear the newcomer's own request is."""
    line, make = Line(), Maker()
    for tenant, output in held:
        line.join(make(tenant, 0, output))
    for _ in range(min(before, line.count - 1)):
        served(line)
    line.join(make("newcomer", MOST, MOST))
    ahead = []
    while (request := served(line)).asked.tenant != "newcomer":
        ahead.append(request.asked.tenant)
    assert len(ahead) == len(set(ahead))


@settings(max_examples=50, deadline=None)
@given(
    outputs=st.lists(st.integers(0, MOST), min_size=20, max_size=80),
    weights=st.tuples(st.sampled_from([0.5, 1.0, 4.0]), st.sampled_from([0.5, 1.0, 4.0])),
)
def test_two_that_always_wait_differ_by_one_request_at_most(outputs: list[int], weights: tuple[float, float]) -> None:
    """INV-18 without errors of estimates, between any two moments: c/w of the one + c/w of the other."""
    line, make = Line(), Maker()
    of = dict(zip("ab", weights, strict=True))
    for tenant, weight in of.items():
        for output in outputs if tenant == "a" else reversed(outputs):
            line.join(make(tenant, 0, output, weight=weight))
    lags = [0.0]
    had = {"a": 0.0, "b": 0.0}
    dearest = cost(0, max(outputs))
    while line.length("a") and line.length("b"):
        request = served(line)
        tenant = request.asked.tenant
        had[tenant] += cost(0, request.output) / of[tenant]
        lags.append(had["a"] - had["b"])
    assert max(lags) - min(lags) <= dearest / weights[0] + dearest / weights[1] + 1e-9


@settings(max_examples=100, deadline=None)
@given(
    # 8 requests of 40 × MOST tokens cost 401 each (XL is 256 and more); XS has 16 times their share and costs 1 at
    # least, so that 8 × 401 × 16 = 51,328 of those come first at most
    held=st.lists(st.integers(0, 40 * MOST), max_size=7),
    before=st.integers(0, 7),
    mine=st.integers(0, 40 * MOST),
    later=st.lists(st.integers(0, 40 * MOST), min_size=1, max_size=5),
)
def test_no_size_starves(held: list[int], before: int, mine: int, later: list[int]) -> None:
    """INV-23: each other size of the tenant sends (B + c) × its share ÷ own + d at most before it, whatever comes."""
    line, make = Line(), Maker()
    dearest = dict.fromkeys(SIZES, 0.0)
    sent = dict.fromkeys(SIZES, 0.0)

    def join(output: int) -> LiveRequest:
        request = make("a", 0, output)
        dearest[size_of(request)] = max(dearest[size_of(request)], cost(0, output))
        line.join(request)
        return request

    waiting = [join(output) for output in held]
    for _ in range(min(before, line.count - 1)):
        waiting.remove(served(line))
    last = join(mine)
    own = size_of(last)
    ahead = sum(cost(0, request.output) for request in waiting if size_of(request) == own)
    number = 0
    while (request := served(line)) is not last:
        sent[size_of(request)] += cost(0, request.output)
        join(later[number % len(later)])  # who would starve it comes without an end
        number += 1
        assert number < 100_000
    assert sent[own] == pytest.approx(ahead)
    for name in SIZES:
        if name != own:
            assert sent[name] <= (ahead + dearest[own]) * SHARES[name] / SHARES[own] + dearest[name] + 1e-6
