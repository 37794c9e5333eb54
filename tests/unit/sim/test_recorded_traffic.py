"""Decision logs as a workload: what was recorded comes again, prompts, sessions and clocks as well."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_cluster import arrivals, numbers, played, scenario

from kilocard.core.errors import UsageError
from kilocard.core.prefix import CHUNK, EDGES, Prefix, block_keys, key_blocks
from kilocard.dispatch import events as ev
from kilocard.dispatch.record import answer_list, to_list
from kilocard.dispatch.replay import Setup, header
from kilocard.sim.recorded import recorded_requests
from kilocard.spec.model import AffinitySpec, ModelSpec
from kilocard.workload.request import WorkloadRequest

SETUP = Setup({"m": ModelSpec("m", {"p": 1})}, {}, 5, 1.0)


def log(*events: ev.Event, seed: int = 5, at: float = 0.0, now: float = 0.0) -> list[Any]:
    setup = Setup(SETUP.models, SETUP.pools, seed, 1.0)
    lines = [header(setup, "test", at, now), *([to_list(event)] for event in events)]
    return json.loads(json.dumps(lines))  # type: ignore[no-any-return]  # JSON


def arrived(now: float, id: int, prefix: Prefix | None = None, tokens: int = 1000) -> ev.Arrived:
    return ev.Arrived(now, id, "m", tokens, 99, now + 100, "team", 2, prefix=prefix)


def finished(now: float, id: int, tokens: int | None = 40) -> ev.Finished:
    return ev.Finished(now, id, 200, tokens)


def test_who_asked_what_and_what_became_of_it() -> None:
    asked = log(arrived(7.0, 1), finished(8.0, 1), arrived(9.0, 2), ev.Abandoned(9.5, 2))
    one, two = recorded_requests(asked)
    assert one == WorkloadRequest(0.0, 1000, 40, tenant="team", model="m", priority="low", max_tokens=99)
    assert (two.at_s, two.output_tokens, two.cancel_after_s) == (2.0, 40, 0.5), "an unknown length is the mean"


def test_files_of_one_gateway_go_on_in_each_other() -> None:
    """A request may end in another file than it came in, and the order of the files does not matter."""
    old = log(arrived(10.0, 1), at=1000.0, now=10.0)
    new = log(finished(13.0, 1, 77), arrived(14.0, 2), at=1002.0, now=12.0)
    for files in ([old, new], [new, old]):
        one, two = recorded_requests(*files)
        assert (one.at_s, one.output_tokens, two.at_s) == (0.0, 77, 4.0)


def test_gateways_are_laid_side_by_side_by_the_time_of_day() -> None:
    """Their clocks begin where their machines did, and their requests have the same numbers."""
    here = log(arrived(50.0, 1), finished(51.0, 1, 10), seed=1, at=1000.0, now=50.0)
    there = log(arrived(9000.5, 1), finished(9001.0, 1, 20), seed=2, at=1002.0, now=9000.0)
    assert [(each.at_s, each.output_tokens) for each in recorded_requests(here, there)] == [(0.0, 10), (2.5, 20)]


def test_a_log_from_before_headers_had_the_clock_begins_with_its_first_event() -> None:
    old = log(ev.Tick(50.0), arrived(50.5, 1), finished(51.0, 1), seed=1, at=1000.0)
    del old[0]["now"]
    assert [each.at_s for each in recorded_requests(old, log(arrived(3.0, 1), at=1002.0, now=3.0))] == [0.0, 1.5]


PROMPTS = st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=40), min_size=1, max_size=8)


@given(PROMPTS)
def test_blocks_of_recorded_prompts_share_what_their_keys_share(prompts: list[list[int]]) -> None:
    """As long, and as far alike, as the keys say; and the simulated gateway makes keys of them that are as alike."""
    keys = [block_keys(prompt, CHUNK) for prompt in prompts]
    ids: dict[int, int] = {}
    blocks = [key_blocks(each, ids) for each in keys]
    again = [block_keys(each, CHUNK) for each in blocks]

    def common(one: Sequence[int], other: Sequence[int]) -> int:
        return next((n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))

    for one in range(len(prompts)):
        assert len(blocks[one]) * CHUNK == EDGES[len(keys[one]) - 1] if keys[one] else not blocks[one]
        for other in range(len(prompts)):
            shared = common(keys[one], keys[other])
            assert common(again[one], again[other]) == shared
            assert common(blocks[one], blocks[other]) * CHUNK == (EDGES[shared - 1] if shared else 0)


def recorded_run(policy: str = "prefix_affinity") -> tuple[list[WorkloadRequest], list[Any]]:
    """40 conversations with long beginnings, and the log of the gateway that routed them."""
    requests = [
        WorkloadRequest(n * 0.25, 2048 + 16, 8, blocks=tuple(100 * (n % 40) + k for k in range(8)), block_tokens=CHUNK)
        for n in range(400)
    ]
    lines: list[Any] = [header(SETUP, "test", 0.0, 0.0)]
    played(
        scenario(4, policy),
        requests,
        records=[lambda event, answer: lines.append([to_list(event), *map(answer_list, answer)])],
    )
    return requests, json.loads(json.dumps(lines))


def test_what_if_finds_in_caches_what_the_recorded_gateway_found() -> None:
    requests, lines = recorded_run()
    again = recorded_requests(lines)
    for policy in ("prefix_affinity", "queue_depth"):
        then, now = (numbers(scenario(4, policy), work)["prefix_hit_share"] for work in (requests, again))
        assert now == pytest.approx(then, abs=0.01)


def test_a_log_without_hashes_shares_nothing() -> None:
    again = recorded_requests(recorded_run("queue_depth")[1])
    assert numbers(scenario(4), again)["prefix_hit_share"] == 0.0


def test_turns_of_a_named_session_wait_as_they_did() -> None:
    named = Prefix(1000, (), 0, 77)
    story = (arrived(0.0, 1, named), finished(3.0, 1), arrived(5.0, 2, named), finished(6.0, 2))
    one, two = recorded_requests(log(*story))
    assert one.session == two.session
    assert (one.turn, two.turn, two.think_s, two.waits) == (0, 1, 2.0, True)


def test_requests_that_ran_side_by_side_in_a_session_do_so_again() -> None:
    named = Prefix(1000, (), 0, 77)
    story = (arrived(0.0, 1, named), arrived(1.0, 2, named), finished(6.0, 2), finished(6.0, 1))
    requests = recorded_requests(log(*story))
    assert [each.waits for each in requests] == [False, False]
    results = played(scenario(1), requests).results
    assert list(results.arrived_s) == [0.0, 1.0]


def homes(affinity: AffinitySpec, sessions: Sequence[str]) -> dict[str, set[str]]:
    """Where the requests of each session were sent; they come close together, so load pulls them apart."""
    requests = [
        WorkloadRequest(n * 0.02, 3000, 20, session=sessions[n % len(sessions)], waits=False) for n in range(120)
    ]
    base = scenario(4, "prefix_affinity")
    base.models["m"] = ModelSpec("m", {"p": 1}, "prefix_affinity", affinity=affinity)  # type: ignore[index]
    sent: dict[str, set[str]] = {}

    def note(event: ev.Event, answer: Any) -> None:
        for each in map(answer_list, answer):
            if each[0] == "send":
                sent.setdefault(requests[each[1]].session or "", set()).add(each[3])

    played(base, requests, records=[note])
    return sent


def test_a_traces_sessions_are_what_the_header_names() -> None:
    names = [f"s{n}" for n in range(8)]
    with_header = homes(AffinitySpec("x-session-id"), names)
    without = homes(AffinitySpec(), names)
    assert sum(map(len, with_header.values())) < sum(map(len, without.values()))
    assert set(map(len, with_header.values())) == {1}


def test_clients_declare_what_they_declared() -> None:
    seen: list[ev.Event] = []
    requests = recorded_requests(log(arrived(0.0, 1), finished(1.0, 1), arrived(1.5, 2), finished(2.0, 2)))
    played(scenario(1), requests, records=[lambda event, _: seen.append(event)])
    assert [each.output_tokens for each in seen if isinstance(each, ev.Arrived)] == [99, 99]
    seen.clear()
    played(scenario(1), arrivals(5, 3), records=[lambda event, _: seen.append(event)])
    assert {each.output_tokens for each in seen if isinstance(each, ev.Arrived)} == {256}


@pytest.mark.parametrize("line", [[], [[]], [["arrived"]], [["nothing", 1.0]], [[["a"], 1.0]], 5])
def test_a_line_that_is_none_is_named(line: Any) -> None:
    with pytest.raises(UsageError, match=r"line 2|event log"):
        recorded_requests([log()[0], line])


def test_a_log_without_a_request_says_so() -> None:
    with pytest.raises(UsageError, match="without a request"):
        recorded_requests(log(ev.Tick(1.0)))
