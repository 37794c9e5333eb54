"""A recorded log replays to the same decisions, from its beginning and from any checkpoint in it."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_invariants import World, fresh
from test_reconfigure_stories import ChangingWorld

from kilocard.core.errors import SpecError, UsageError
from kilocard.core.load import LoadSample
from kilocard.core.prefix import of_blocks
from kilocard.dispatch import checkpoint
from kilocard.dispatch import events as ev
from kilocard.dispatch.config import PoolFacts
from kilocard.dispatch.record import KINDS, answer_list, from_list, to_list
from kilocard.dispatch.replay import Setup, check, header, read_header, what_if
from kilocard.dispatch.turns import Flow
from kilocard.spec.model import HoldSpec, ModelSpec

POLICIES = ["queue_depth", "round_robin", "least_connections", "adaptive", "prefix_affinity"]
SETUP = Setup({"m": ModelSpec("m", {"p": 1}, hold=HoldSpec(5, 2.0))}, {"p": PoolFacts(4, 2)}, 11, 1.0)


def through_json(value: Any) -> Any:
    return json.loads(json.dumps(value, allow_nan=False))


class Recording:
    """What a driver writes."""

    def __init__(self, setup: Setup = SETUP) -> None:
        self.dispatcher = setup.dispatcher()
        self.lines = [through_json(header(setup, "test", 0.0, 0.0))]
        self.request = 0

    def tell(self, event: ev.Event) -> None:
        answer = self.dispatcher.handle(event)
        self.lines.append(through_json([to_list(event), *map(answer_list, answer)]))

    def checkpoint(self, lost: int = 0) -> dict[str, Any]:
        line: dict[str, Any] = through_json({"lost": lost, "checkpoint": checkpoint.pack(self.dispatcher)})
        return line

    def arrive(self, now: float = 1.0) -> int:
        self.request += 1
        self.tell(ev.Arrived(now, self.request, "m", 100, 50, now + 100))
        return self.request


def busy() -> Recording:
    log = Recording()
    for replica in "ab":
        log.tell(ev.ReplicaUp(0.0, replica, "p"))
    log.tell(ev.Scraped(0.5, "a", LoadSample(0.5, 3.0, 1.0, 0.4)))
    for _ in range(6):
        log.arrive()
    log.tell(ev.Failed(1.2, 1, ev.Fault.RESET, None, "it died"))
    log.tell(ev.Finished(1.3, 2, 200, 50))
    log.tell(ev.Tick(9.0))
    return log


def test_a_log_replays_to_the_same_decisions() -> None:
    log = busy()
    found = check(log.lines)
    assert (found.events, found.requests, found.differing) == (len(log.lines) - 1, 6, 0)
    assert found.decisions >= 6


def test_a_changed_answer_is_found_and_shown() -> None:
    lines = busy().lines
    send = next(line for line in lines[1:] if len(line) > 1 and line[1][0] == "send")
    send[1][3] = "elsewhere"
    found = check(lines)
    assert found.differing == 1
    assert found.shown[0]["recorded"][0][3] == "elsewhere"
    assert found.shown[0]["replayed"][0][3] in {"a", "b"}
    assert lines[found.shown[0]["line"] - 1] is send


def test_a_log_goes_on_from_a_checkpoint_alone() -> None:
    """What a rotated file and the lines behind a gap begin with."""
    log = busy()
    middle = [log.lines[0], log.checkpoint(lost=3)]
    before = len(log.lines)
    for now in (9.5, 9.6, 9.7):
        log.arrive(now)
    log.tell(ev.Tick(20.0))
    found = check(middle + log.lines[before:])
    assert (found.events, found.differing, found.gaps) == (4, 0, 1)
    assert check([log.lines[0], *log.lines[before:]]).differing > 0, "without the state the answers are others"


@settings(max_examples=12, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    policy=st.sampled_from(POLICIES),
    at=st.integers(0, 100),
    kind=st.sampled_from([World, ChangingWorld]),
)
def test_a_checkpoint_of_any_state_answers_as_the_original_would(
    seed: int, policy: str, at: int, kind: type[World]
) -> None:
    world = kind(Random(seed), policy)
    for _ in range(at):
        world.step()
    copy = checkpoint.unpack(through_json(checkpoint.pack(world.dispatcher)))
    told = len(world.log)
    for _ in range(60):
        world.step()
    for values, answer in zip(world.log[told:], world.answers[told:], strict=True):
        assert [repr(i) for i in copy.handle(from_list(values))] == [repr(i) for i in answer]
    assert copy.snapshot(world.now) == world.dispatcher.snapshot(world.now)


def test_a_checkpoint_shares_nothing_with_the_original() -> None:
    dispatcher = fresh(7, "adaptive")
    copy = checkpoint.unpack(checkpoint.pack(dispatcher))
    assert copy._rng.random() == dispatcher._rng.random()
    dispatcher.handle(ev.ReplicaUp(0.0, "p0", "p"))
    assert not copy.fleet.replicas and copy.fleet is not dispatcher.fleet


def test_what_holds_itself_comes_back_once() -> None:
    """A waiting tenant's place in the heap holds the tenant, which holds its place: it leaves by being the same."""
    flow = Flow("team", 0.0)
    flow.entry = (1.0, 2, flow)
    entry, again = checkpoint.unpack(through_json(checkpoint.pack([flow.entry, flow])))
    assert entry is again.entry and entry[2] is again and entry[:2] == (1.0, 2)


@pytest.mark.parametrize(
    "table",
    [
        [["named", "os:system"]],
        [["object", "subprocess:Popen", {}]],
        [["named", "kilocard.spec.load:Path"]],
        [["enum", "kilocard.spec.load:load", "/etc/passwd"]],
        [["record", "kilocard.spec.load:load", []]],
        [["method", [1], "__init__"], ["list", []]],
        [["method", "text", "upper"]],
        [["magic", 1]],
        [["tuple", [[0]]]],
        [[]],
        [],
        [["random", 5]],
    ],
)
def test_a_checkpoint_that_nobody_packed_runs_nothing(table: list[Any]) -> None:
    if table == [["method", "text", "upper"]]:
        assert checkpoint.unpack(table)() == "TEXT"  # a text's own methods do no harm
        return
    with pytest.raises(UsageError):
        checkpoint.unpack(table)


def test_what_can_not_be_packed_is_said() -> None:
    with pytest.raises(TypeError, match="can't be part of a dispatcher's state"):
        checkpoint.pack({"f": lambda: 1})


def test_what_if_counts_who_would_have_gone_elsewhere() -> None:
    log = Recording()
    for replica in "ab":
        log.tell(ev.ReplicaUp(0.0, replica, "p"))
        log.tell(ev.Scraped(0.1, replica, LoadSample(0.1, 2.0 if replica == "a" else 0.0, 0.0, 0.5)))
    for _ in range(4):
        request = log.arrive()
        log.tell(ev.Finished(1.0, request, 200, 5))
    assert what_if(log.lines, "queue_depth").elsewhere == 0
    other = what_if(log.lines, "round_robin")
    assert (other.sent, other.elsewhere, other.not_sent) == (4, 2, 0)
    assert other.replicas == {"a": [0, 2], "b": [4, 2]}


def test_what_if_goes_on_behind_a_checkpoint() -> None:
    log = busy()
    lines = [log.lines[0], log.checkpoint()]
    before = len(log.lines)
    for request in (1, 3, 4, 5, 6):
        log.tell(ev.Abandoned(9.1, request))
    log.arrive(9.5)
    found = what_if(lines + log.lines[before:], "adaptive")
    assert (found.sent, found.not_sent) == (1, 0)


def test_what_if_keeps_its_policy_over_a_change_of_the_file() -> None:
    log = Recording()
    for replica in "ab":
        log.tell(ev.ReplicaUp(0.0, replica, "p"))
        log.tell(ev.Scraped(0.1, replica, LoadSample(0.1, 2.0 if replica == "a" else 0.0, 0.0, 0.5)))
    log.tell(ev.Reconfigured(0.5, SETUP.models, SETUP.pools, 1.0))
    for _ in range(4):
        log.tell(ev.Finished(1.0, log.arrive(), 200, 5))
    assert check(log.lines).differing == 0
    assert what_if(log.lines, "round_robin").replicas == {"a": [0, 2], "b": [4, 2]}


def test_what_if_forgets_requests_that_ended_then() -> None:
    """A request that was refused then and is sent by the other policy would stay for ever."""
    log = Recording()
    log.arrive()
    log.tell(ev.Tick(9.0))
    assert log.dispatcher.live == 0
    assert what_if(log.lines, "round_robin").sent == 0
    with pytest.raises(SpecError, match="no 'best'"):
        what_if(log.lines, "best")


EVENTS = [
    ev.Arrived(1.5, 1, "m", 10, 20, 30.0, "team", 2, 0.5),
    ev.Failed(2.0, 1, ev.Fault.STATUS, 503, "busy"),
    ev.Scraped(3.0, "a", None),
    ev.Scraped(3.0, "a", LoadSample(3.0, 1.0, None, 0.25)),
    ev.Finished(4.0, 1, 200, None),
    ev.Reconfigured(5.0, SETUP.models, SETUP.pools, 2.0),
]


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event).__name__)
def test_an_event_comes_back_as_it_was(event: ev.Event) -> None:
    again = from_list(through_json(to_list(event)))
    assert again == event and type(again) is type(event)


def test_every_kind_of_event_has_a_name() -> None:
    assert "first_content" in KINDS and "replica_up" in KINDS


@pytest.mark.parametrize(
    "line", [[], ["unknown", 1], [["arrived"], 1], ["arrived", 1.0], ["failed", 1.0, 1, "x", 1, ""]]
)
def test_what_is_no_event_is_said(line: list[Any]) -> None:
    with pytest.raises(UsageError, match="event log"):
        from_list(line)


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (None, "no header"),
        ([1], "no header"),
        ({"kilocard_decision_log": 1, "kilocard": "0.1"}, "replay it with kilocard 0.1"),
        ({"kilocard_decision_log": 2, "setup": [["list", []]]}, "does not describe"),
    ],
)
def test_what_is_no_header_is_said(line: Any, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        read_header(line)


@pytest.mark.parametrize("line", [1, [], [1], {"lost": 1}, {"checkpoint": [["list", []]]}])
def test_what_is_no_line_is_said(line: Any) -> None:
    with pytest.raises(UsageError, match="line 2"):
        check([header(SETUP, "test", 0.0, 0.0), line])


@pytest.mark.parametrize("line", [[["tick", "later"]], [["replica_up", 1.0, [], "p"]]])
def test_a_damaged_line_is_named(line: list[Any]) -> None:
    log = busy()
    with pytest.raises(UsageError, match=rf"line {len(log.lines) + 1} is damaged"):
        check([*log.lines, line])
    with pytest.raises(UsageError):
        what_if([*log.lines, line], "round_robin")


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 2**32), policy=st.sampled_from(["queue_depth", "round_robin", "adaptive"]))
def test_that_prompts_are_recorded_changes_no_decision_of_a_policy_that_does_not_ask(seed: int, policy: str) -> None:
    """GW-3."""
    world = World(Random(seed), policy)
    for _ in range(120):
        world.step()
    told = fresh(7, policy)
    for values, answer in zip(world.log, world.answers, strict=True):
        event = from_list(values)
        if isinstance(event, ev.Arrived):
            event = event._replace(prefix=of_blocks(event.prompt_tokens, range(20), 256, "home", "session"))
        assert [repr(i) for i in told.handle(event)] == [repr(i) for i in answer]
    assert told.snapshot(world.now) == world.dispatcher.snapshot(world.now)
    assert told.stats == world.dispatcher.stats
