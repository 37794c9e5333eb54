"""Second attempts over real sockets: who wins, who is cut, and what it does to the tail."""

from __future__ import annotations

import asyncio
import json
import random
from typing import Any

import pytest
from stub_engine import (
    BEAT,
    DONE,
    END,
    HOURS,
    JSON_ANSWER,
    PATIENT,
    ROLE,
    STOP,
    STREAM_HEAD,
    Asked,
    HandClock,
    Script,
    Setup,
    Wire,
    answer,
    answers_when,
    chunk,
    delta,
    first_then,
    gateway_over,
    hang,
    run,
    times_asked,
    until,
    whole,
    within,
)

from kilocard.net.client import fetch
from kilocard.spec.model import HedgeSpec, HoldSpec, ModelSpec, Timeouts

SOON = HedgeSpec(after=0.15, budget=1.0, max_load=1.0)


def hedged(hedge: HedgeSpec | None = SOON, **more: Any) -> ModelSpec:
    return ModelSpec("m", {"p": 1}, policy="round_robin", hold=HoldSpec(100, 2.0), hedge=hedge, **more)


def page(setup: Setup) -> str:
    return setup.gateway.plane.telemetry.registry.render().decode()


def count(page: str, result: str) -> int:
    line = f'kilocard_hedges_total{{model="m",result="{result}"}} '
    return next((int(row.removeprefix(line)) for row in page.splitlines() if row.startswith(line)), 0)


@pytest.mark.parametrize("stream", [False, True])
def test_the_second_attempt_wins_and_the_first_engine_is_told_to_stop(stream: bool) -> None:
    async def story() -> None:
        script = first_then(hang, answer)
        async with gateway_over(script, script, script, model=hedged()) as setup:
            body = {"model": "m", "messages": [], "stream": stream}
            response = await setup.post(body, headers=[("x-kilocard-receipt", "1")])
            assert response.status == 200
            if stream:
                assert response.body == ROLE + delta("hel") + delta("lo") + STOP + DONE
            else:
                assert response.body == JSON_ANSWER
            said = json.loads(response.headers["x-kilocard-receipt"])
            assert said["hedge"]["won"] and len(said["attempts"]) == 2
            assert said["reason"] == "hedge: the first token is late", "no id of a replica: it may be its address"
            asked = [asked for engine in setup.engines for asked in engine.asked]
            assert len(asked) == 2
            ids = {one.headers["x-request-id"] for one in asked}
            assert len(ids) == 2, "each attempt has an id of its own"
            await until(lambda: any(one.gone.is_set() for one in asked), 1.0)
            seen = page(setup)
            assert (count(seen, "sent"), count(seen, "won")) == (1, 1)
            tokens = next(row for row in seen.splitlines() if row.startswith("kilocard_generation_tokens_total"))
            assert tokens.endswith(" 2" if stream else " 1"), "counted once, for the winner"

    run(story())


@pytest.mark.parametrize("stream", [False, True])
def test_the_first_attempt_wins_and_the_second_engine_is_told_to_stop(stream: bool) -> None:
    async def story() -> None:
        async def late(asked: Asked, wire: Wire) -> None:
            await until(lambda: times_asked(setup) == 2)
            await answer(asked, wire)

        script = first_then(late, hang)
        async with gateway_over(script, script, model=hedged(), timeouts=PATIENT) as setup:
            response = await setup.chat(stream=stream)
            assert response.status == 200 and (b"hel" in response.body or response.body == JSON_ANSWER)
            asked = [one for engine in setup.engines for one in engine.asked]
            (second,) = [one for one in asked if one.headers["x-request-id"].endswith("-2")]
            async with within(1.0):
                await second.gone.wait()
            seen = page(setup)
            assert (count(seen, "sent"), count(seen, "lost")) == (1, 1)

    run(story())


async def dies(asked: Asked, wire: Wire) -> None:
    wire.reset()


async def fails(asked: Asked, wire: Wire) -> None:
    await wire.send(whole(b"{}", "500 Internal Server Error"))


@pytest.mark.parametrize("failure", [dies, fails])
@pytest.mark.parametrize("stream", [False, True])
def test_a_failure_of_either_does_not_reach_the_client(stream: bool, failure: Script) -> None:
    async def story() -> None:
        async def failing(asked: Asked, wire: Wire) -> None:
            await until(lambda: times_asked(setup) == 2)
            await failure(asked, wire)

        async def other(asked: Asked, wire: Wire) -> None:
            await until(lambda: count(page(setup), result))
            await answer(asked, wire)

        for first, second, result in ((failing, other, "took_over"), (other, failing, "failed")):
            script = first_then(first, second)
            async with gateway_over(script, script, model=hedged(), timeouts=PATIENT) as setup:
                response = await setup.chat(stream=stream)
                assert response.status == 200 and b'"error"' not in response.body
                assert sum(len(engine.asked) for engine in setup.engines) == 2, "no third attempt was needed"
                seen = page(setup)
                assert (count(seen, "sent"), count(seen, result)) == (1, 1)

    run(story())


def test_a_second_attempt_that_ends_with_an_error_event_is_no_answer() -> None:
    """Its event has no blank line behind it, so only the end of the response tells."""

    async def fails(asked: Asked, wire: Wire) -> None:
        await wire.send(STREAM_HEAD + chunk(ROLE + b'data: {"error":{"code":500}}') + END)

    async def story() -> None:
        async def other(asked: Asked, wire: Wire) -> None:
            await until(lambda: count(page(setup), "failed"))
            await answer(asked, wire)

        script = first_then(other, fails)
        async with gateway_over(script, script, model=hedged(), timeouts=PATIENT) as setup:
            response = await setup.chat(stream=True)
            assert response.status == 200 and response.body == ROLE + delta("hel") + delta("lo") + STOP + DONE
            seen = page(setup)
            assert (count(seen, "sent"), count(seen, "failed")) == (1, 1)

    run(story())


def test_a_second_attempt_whose_whole_stream_is_an_error_event_is_no_answer() -> None:
    """It comes in one read, with a length, and leaves the first attempt alone."""
    right, wrong = ROLE + delta("x") + DONE, b'data: {"error":{"code":500}}\n\n' + DONE
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: %d\r\n\r\n"

    async def story() -> None:
        ready = False

        async def script(asked: Asked, wire: Wire) -> None:
            body = right
            if ready and len(engines[0].asked) + len(engines[1].asked) == 5:
                await until(lambda: count(page(setup), "failed"))
            elif ready:
                body = wrong
            await wire.send(head % len(body) + body)

        async with gateway_over(script, script, model=hedged(), timeouts=PATIENT) as setup:
            engines = setup.engines
            for _ in range(4):  # now their heads are known
                assert (await setup.chat(stream=True)).body == right
            ready = True
            response = await setup.chat(stream=True)
            assert response.status == 200 and response.body == right
            assert [len(engine.asked) for engine in engines] == [3, 3]

    run(story())


def test_when_both_fail_the_client_gets_one_error() -> None:
    async def story() -> None:
        async def dies_second(asked: Asked, wire: Wire) -> None:
            await until(lambda: times_asked(setup) == 2)
            wire.reset()

        async with gateway_over(dies_second, dies_second, model=hedged(), timeouts=PATIENT) as setup:
            response = await setup.chat(stream=True)
            assert count(page(setup), "sent") == 1
            assert response.status == 502 and json.loads(response.body)["error"]["code"] == "reset"

    run(story())


def test_a_client_that_leaves_stops_both_engines() -> None:
    async def story() -> None:
        async with gateway_over(hang, hang, model=hedged(), timeouts=PATIENT) as setup:
            reader, writer = await setup.raw()
            body = json.dumps({"model": "m", "stream": True, "messages": []}).encode()
            head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % len(body)
            writer.write(head + body)
            await until(lambda: times_asked(setup) == 2)
            writer.transport.abort()
            for engine in setup.engines:
                async with within(1.0):
                    await engine.asked[0].gone.wait()
            assert reader

    run(story())


def test_one_byte_at_a_time_and_all_in_one_read_come_out_the_same() -> None:
    text = ROLE + delta("he") + delta("读🙂") + STOP + DONE

    async def bytewise(asked: Asked, wire: Wire) -> None:
        for byte in STREAM_HEAD + chunk(text) + END:
            await wire.send(bytes([byte]))
            await asyncio.sleep(0)

    async def at_once(asked: Asked, wire: Wire) -> None:
        await wire.send(STREAM_HEAD + chunk(text) + END)

    async def story() -> None:
        for other in (bytewise, at_once):
            script = first_then(hang, other)
            async with gateway_over(script, script, model=hedged()) as setup:
                assert (await setup.chat(stream=True)).body == text

    run(story())


def test_large_answers_and_files_can_win_too() -> None:
    big = b'{"x":"' + b"y" * 3_000_000 + b'"}'

    async def large(asked: Asked, wire: Wire) -> None:
        await wire.send(whole(big))

    async def sound(asked: Asked, wire: Wire) -> None:
        await wire.send(whole(b"RIFF" * 10).replace(b"application/json", b"audio/wav"))

    async def story() -> None:
        for other, expected in ((large, big), (sound, b"RIFF" * 10)):
            script = first_then(hang, other)
            async with gateway_over(script, script, model=hedged()) as setup:
                assert (await setup.chat()).body == expected

    run(story())


@pytest.mark.parametrize("stream", [False, True])
def test_who_took_over_may_be_hedged_too_and_is_not_forgotten(stream: bool) -> None:
    """The first fails, the second is late, a third answers: nothing of the second gets into what the client reads."""
    attempts: list[Asked] = []
    late = asyncio.Event()

    async def script(asked: Asked, wire: Wire) -> None:
        if b"warm" in asked.body:
            await answer(asked, wire)
            return
        attempts.append(asked)
        if len(attempts) == 1:
            await until(lambda: len(attempts) == 2)
            await wire.send(whole(b"{}", "500 Internal Server Error"))
        elif len(attempts) == 2:
            await asked.gone.wait()
            late.set()
            await answer(asked, wire)
        else:
            await answer(asked, wire)

    async def story() -> None:
        async with gateway_over(script, script, script, model=hedged(), timeouts=PATIENT) as setup:
            for _ in range(3):  # they earn the budget
                await setup.post({"model": "m", "warm": True, "messages": []})
            reader, writer = await setup.raw()
            body = json.dumps({"model": "m", "stream": stream, "messages": []}).encode()
            head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % len(body)
            writer.write(head + body)
            await until(lambda: len(attempts) == 3)
            await late.wait()
            await asyncio.sleep(0.1)  # it would have answered by now, into this connection
            writer.write(b"GET /healthz HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
            said = await reader.read()
            writer.close()
            assert said.count(b"HTTP/1.1 200 OK") == 2
            assert said.count(b"[DONE]" if stream else JSON_ANSWER) == 1

    run(story())


def test_the_words_of_the_first_are_not_the_answer_where_the_second_took_over_and_failed_otherwise() -> None:
    """As with any other retry."""
    attempts: list[Asked] = []
    taken_over = asyncio.Event()

    async def script(asked: Asked, wire: Wire) -> None:
        attempts.append(asked)
        if len(attempts) == 1:
            await until(lambda: len(attempts) == 2)
            await wire.send(whole(b'{"error":{"message":"CUDA"}}', "500 Internal Server Error"))
        else:
            await taken_over.wait()
            wire.reset()

    async def story() -> None:
        async with gateway_over(script, script, model=hedged(), timeouts=PATIENT) as setup:
            exchanges = setup.gateway.plane.exchanges
            asking = asyncio.ensure_future(setup.chat())
            await until(lambda: len(attempts) == 2 and all(one.rival is None for one in exchanges.values()))
            taken_over.set()
            response = await asking
            assert json.loads(response.body)["error"]["code"] == "reset" and response.status == 502

    run(story())


def test_off_at_saturation() -> None:
    async def story() -> None:
        go_on = asyncio.Event()
        waits = answers_when(go_on)
        model = hedged(HedgeSpec(after=0.15, budget=1.0, max_load=0.5))
        async with gateway_over(waits, waits, model=model, timeouts=HOURS, args={"max-num-seqs": 4}) as setup:
            clock = HandClock(setup)  # nobody is late until all are there
            asking = [asyncio.ensure_future(setup.chat()) for _ in range(8)]
            await until(lambda: times_asked(setup) == 8)
            await clock.forward(1.0)
            assert count(page(setup), "sent") == 0
            go_on.set()
            await asyncio.gather(*asking)
            go_on.clear()
            before = count(page(setup), "sent")  # as they end there is room, one after the other
            asking = [asyncio.ensure_future(setup.chat()) for _ in range(2)]
            await until(lambda: sum(setup.in_flight().values()) == 2)
            await clock.forward(0.2)
            assert count(page(setup), "sent") == before + 2, "and on again when there is room"
            go_on.set()
            await asyncio.gather(*asking)

    run(story())


def test_a_storm_of_hedges_leaves_nothing_behind() -> None:
    """Each answer exactly once, whole; gateway_over checks that every counter is back at zero."""
    rng = random.Random(5)  # which fault comes next is no secret

    async def moody(asked: Asked, wire: Wire) -> None:
        await asyncio.sleep(rng.choice([0.0, 0.05, 0.2, 0.3, 0.4]))
        roll = rng.random()
        if roll < 0.1:
            wire.reset()
        elif roll < 0.2:
            await wire.send(whole(b"{}", "500 Internal Server Error"))
        else:
            await answer(asked, wire)

    async def story() -> None:
        timeouts = Timeouts(connect=10.0, first_token=30.0, idle=10.0, total=60.0)
        async with gateway_over(*[moody] * 4, model=hedged(), timeouts=timeouts) as setup:
            body = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}

            async def one(number: int) -> None:
                await asyncio.sleep(rng.random() * 2)
                wants_stream = number % 2 == 0
                data = json.dumps({**body, "n": number, "stream": wants_stream}).encode()
                try:
                    response = await fetch(
                        setup.url + "/v1/chat/completions",
                        method="POST",
                        headers=[("content-type", "application/json")],
                        body=data,
                        timeout=60 if number % 5 else 0.25,
                    )
                except Exception:
                    assert number % 5 == 0, "only those that leave early get nothing"
                    return
                if response.status == 200 and wants_stream:
                    assert response.body.count(b"[DONE]") == 1 and response.body.count(b"hel") == 1
                elif response.status == 200:
                    assert response.body == JSON_ANSWER

            await asyncio.gather(*(one(number) for number in range(300)))
            await setup.settles()
            seen = page(setup)
            results = [count(seen, result) for result in ("won", "lost", "failed", "took_over")]
            assert sum(results) == count(seen, "sent") > 20 and all(results)

    run(story())


def test_one_sick_replica_of_three_no_longer_makes_the_tail() -> None:
    """Each eighth first token of one replica takes 2 s. Who waits longer than one takes that?"""

    async def sometimes_sick(asked: Asked, wire: Wire) -> None:
        for _ in range(200 if asked.number % 8 == 0 else 2):
            await asyncio.sleep(BEAT)
        await answer(asked, wire)

    async def well(asked: Asked, wire: Wire) -> None:
        await asyncio.sleep(0.02)
        await answer(asked, wire)

    async def slow_answers(hedge: HedgeSpec | None) -> int:
        replicas = (sometimes_sick, well, well)
        async with gateway_over(*replicas, model=hedged(hedge), timeouts=HOURS) as setup, within(60.0) as beats:

            async def one(number: int) -> bool:
                await asyncio.sleep(number * 0.02)
                began = beats.seconds
                assert (await setup.chat(stream=True)).status == 200
                return beats.seconds - began > 1.0

            return sum(await asyncio.gather(*(one(number) for number in range(120))))

    async def story() -> None:
        assert await slow_answers(None) == 5
        assert await slow_answers(HedgeSpec(after=0.15, budget=0.2)) <= 1, "the first may come before the budget"

    run(story())
