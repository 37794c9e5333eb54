"""`policy: prefix_affinity` through a real gateway: conversations stay where their beginning is cached."""

from __future__ import annotations

import asyncio
import json
import random
import uuid
from collections import defaultdict
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from stub_engine import Asked, Setup, Wire, answer, die, gateway_over, run

from kilocard.dispatch.replay import check
from kilocard.net.client import fetch
from kilocard.sim.recorded import recorded_requests
from kilocard.spec.model import AffinitySpec, EjectSpec, GatewaySpec, HoldSpec, ModelSpec
from kilocard.spec.services import RecordSpec

MODEL = ModelSpec("m", {"p": 1}, policy="prefix_affinity", hold=HoldSpec(100, 2.0))
RULES = "Answer in one sentence and name your source. " * 120  # some 1,350 tokens
ASK = ("x-kilocard-receipt", "1")


def conversation(name: str, turns: int, rules: str = RULES) -> list[dict[str, str]]:
    said = [{"role": "system", "content": rules}]
    for turn in range(turns):
        said.append({"role": "user", "content": f"{name} asks about part {turn}: " + f"{name} {turn} " * 300})
        if turn < turns - 1:
            said.append({"role": "assistant", "content": f"{name} is told about {turn}. " * 20})
    return said


async def turn(setup: Setup, name: str, number: int, **more: Any) -> dict[str, Any]:
    body = {"model": "m", "messages": conversation(name, number, more.pop("rules", RULES)), "stream": number % 2 == 0}
    headers = [ASK, *more.pop("headers", [])]
    response = await setup.post(body, headers=headers, **more)
    assert response.status == 200
    said: dict[str, Any] = json.loads(response.headers["x-kilocard-receipt"])
    return said


async def chat_all(setup: Setup, names: list[str], turns: int) -> dict[str, list[dict[str, Any]]]:
    """All conversations at once; in each the next turn follows the answer."""
    receipts: dict[str, list[dict[str, Any]]] = defaultdict(list)

    async def one(name: str) -> None:
        rng = random.Random(name)
        for number in range(1, turns + 1):
            receipts[name].append(await turn(setup, name, number))
            await asyncio.sleep(rng.random() * 0.3)  # or they are rightly spread by load

    await asyncio.gather(*map(one, names))
    return receipts


def test_turns_stay_and_the_receipt_and_the_metrics_say_what_was_expected() -> None:
    async def story() -> None:
        async with gateway_over(answer, answer, answer, model=MODEL) as setup:
            receipts = await chat_all(setup, [f"client-{n}" for n in range(12)], 5)
            stayed = sum(
                later["replica"] == earlier["replica"]
                for said in receipts.values()
                for earlier, later in pairwise(said)
            )
            assert stayed >= 0.75 * 12 * 4, "a third would by chance"
            assert {said[0]["replica"] for said in receipts.values()} == {"p/0", "p/1", "p/2"}
            last = receipts["client-0"][-1]
            assert last["policy"] == "prefix_affinity" and last["reason"].startswith(
                "prefix_affinity: soonest first token"
            )
            assert 0.5 * last["prompt_tokens"] < last["expected_cached_tokens"] < last["prompt_tokens"]
            scores = [last["score"], *(other["score"] for other in last["alternatives"])]
            assert scores == sorted(scores) and len(scores) == 3
            page = (await fetch(f"http://127.0.0.1:{setup.gateway.admin_port}/metrics", timeout=5)).body.decode()
            values = dict(line.rsplit(" ", 1) for line in page.splitlines() if line.startswith("kilocard_prefix"))
            prompt = float(values['kilocard_prefix_prompt_tokens_total{model="m"}'])
            expected = float(values['kilocard_prefix_expected_tokens_total{model="m"}'])
            assert 0.4 < expected / prompt < 1.0
            assert values['kilocard_prefix_trust{model="m",pool="p"}'] in {"1", "1.0"}

    run(story())


def test_30_a_nonce_in_each_system_prompt_parts_no_conversation() -> None:
    async def story() -> None:
        async with gateway_over(answer, answer, answer, answer, model=MODEL) as setup:
            for name in ("one", "two", "three", "four", "five"):
                homes = set()
                for number in range(1, 4):
                    rules = f"Request {uuid.uuid4()} at 2026-11-30T01:02:0{number}Z. {RULES}"
                    homes.add((await turn(setup, name, number, rules=rules))["replica"])
                assert len(homes) == 1, name
            asked = [one.body for engine in setup.engines for one in engine.asked]
            assert all(b"2026-11-30T01:02:0" in body for body in asked), "the body itself goes on as it came"

    run(story())


def test_lb_14_a_header_names_the_session_and_is_passed_on() -> None:
    async def story() -> None:
        model = replace(MODEL, affinity=AffinitySpec(header="x-session-id"))
        async with gateway_over(answer, answer, answer, answer, model=model) as setup:
            homes: dict[str, set[str]] = defaultdict(set)
            for number in range(1, 4):
                for name in map(str, range(10)):
                    headers = [("X-Session-Id", f"s-{name}")]
                    body = {"model": "m", "messages": [{"role": "user", "content": f"{number} new text {name}"}]}
                    said = await setup.post(body, headers=[ASK, *headers])
                    homes[name].add(json.loads(said.headers["x-kilocard-receipt"])["replica"])
            assert all(len(replicas) == 1 for replicas in homes.values())
            assert len(set.union(*homes.values())) >= 3
            asked = [one for engine in setup.engines for one in engine.asked]
            assert all(one.headers["x-session-id"].startswith("s-") for one in asked)

    run(story())


def test_a_replica_that_fails_loses_its_conversations_and_nobody_notices() -> None:
    async def story() -> None:
        model = replace(MODEL, eject=EjectSpec(consecutive=1, backoff=5.0))
        async with gateway_over(answer, answer, model=model) as setup:
            before = await turn(setup, "one", 1)
            broken = setup.engines[int(before["replica"][-1])]
            broken.script = die
            after = await turn(setup, "one", 2)
            assert after["replica"] != before["replica"] and len(after["attempts"]) == 2
            assert after["expected_cached_tokens"] == 0, "the one that died is not believed in, the other had nothing"
            again = await turn(setup, "one", 3)
            assert again["replica"] == after["replica"] and again["expected_cached_tokens"] > 0

    run(story())


def test_engines_counters_take_the_policys_trust_away() -> None:
    async def story() -> None:
        sent = 0

        async def counting(asked: Asked, wire: Wire) -> None:
            nonlocal sent
            sent += len(asked.body) // 4
            for engine in setup.engines:
                engine.metrics = (
                    b"vllm:num_requests_running 0\nvllm:num_requests_waiting 0\n"
                    b"vllm:prefix_cache_queries_total %d\nvllm:prefix_cache_hits_total 0\n" % sent
                )
            await answer(asked, wire)

        gateway = GatewaySpec(scrape_interval=0.05)
        async with gateway_over(counting, counting, model=MODEL, gateway=gateway) as setup:
            for _ in range(25):
                said = await turn(setup, "one", 4)
                await asyncio.sleep(0.03)
            async with asyncio.timeout(60):
                while said["expected_cached_tokens"]:
                    said = await turn(setup, "one", 4)
                    await asyncio.sleep(0.05)

    run(story())


def test_the_log_of_such_a_gateway_replays_exactly_and_holds_no_text(tmp_path: Path) -> None:
    path = tmp_path / "decisions.jsonl"

    async def story() -> None:
        gateway = GatewaySpec(record=RecordSpec(str(path), 40_000), scrape_interval=0.1)
        async with gateway_over(answer, answer, answer, model=MODEL, gateway=gateway, max_in_flight=3) as setup:
            setup.engines[0].metrics = b"vllm:num_requests_running 2\nvllm:num_requests_waiting 0\n"
            await chat_all(setup, [f"client-{n}" for n in range(25)], 6)

    run(story())
    files = sorted(tmp_path.glob("decisions.jsonl*"))
    assert len(files) == 2, "a second file goes on from a checkpoint, with what is known of caches"
    requests = 0
    for file in files:
        text = file.read_text()
        assert "asks about" not in text and "name your source" not in text
        found = check(json.loads(line) for line in text.splitlines())
        assert found.differing == 0, found.shown
        requests += found.requests
    assert requests > 30


def test_a_changed_cluster_file_turns_it_on_and_other_policies_never_look_at_prompts() -> None:
    async def story() -> None:
        async with gateway_over(answer, answer, model=replace(MODEL, policy="queue_depth")) as setup:
            said = await turn(setup, "one", 2)
            assert "expected_cached_tokens" not in said
            gateway = setup.gateway
            spec = replace(gateway.spec, models={"m": MODEL})
            gateway.plane.reconfigure(spec, {})
            first = await turn(setup, "one", 2)
            later = await turn(setup, "one", 3)
            assert later["replica"] == first["replica"] and later["expected_cached_tokens"] > 0

    run(story())


def test_a_log_that_wants_prefixes_has_them_whatever_the_policy_and_nothing_else_changes(tmp_path: Path) -> None:
    """What a simulation of the log finds in caches is what it would have found under prefix_affinity."""

    async def story(policy: str) -> None:
        model = replace(MODEL, policy=policy, affinity=AffinitySpec(header="x-session-id"))
        gateway = GatewaySpec(record=RecordSpec(str(tmp_path / policy), prefixes=policy == "queue_depth"))
        async with gateway_over(answer, answer, model=model, gateway=gateway) as setup:
            for number in range(1, 5):
                said = await turn(setup, "one", number)
                assert ("expected_cached_tokens" in said) == (policy == "prefix_affinity")
                body = {"model": "m", "messages": [{"role": "user", "content": f"{number}"}]}
                await setup.post(body, headers=[("X-Session-Id", "mine")])

    policies = ("queue_depth", "prefix_affinity")
    for policy in policies:
        run(story(policy))
    logs = {name: [json.loads(line) for line in (tmp_path / name).read_text().splitlines()] for name in policies}
    prompts = {
        name: [(each.input_tokens, each.blocks, each.session, each.turn, each.waits) for each in recorded_requests(log)]
        for name, log in logs.items()
    }
    assert prompts["queue_depth"] == prompts["prefix_affinity"]
    assert [len(blocks) > 3 for _, blocks, *_ in prompts["queue_depth"]] == [True, False] * 4
    assert [turn for *_, session, turn, waits in prompts["queue_depth"] if session and waits] == [0, 1, 2, 3]
    for log in logs.values():
        assert check(log).differing == 0
