"""Streams that went wrong elsewhere, played again. Names begin with the case's id in docs/cases.md."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from statistics import median

import pytest
from stub_engine import (
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
    StubEngine,
    Wire,
    answer,
    answers_when,
    chunk,
    delta,
    gateway_over,
    hang,
    run,
    until,
    within,
)

from kilocard.spec.model import EjectSpec, GatewaySpec, HoldSpec, ModelSpec, Timeouts

#: what `answer` streams
WHOLE = ROLE + delta("hel") + delta("lo") + STOP + DONE


def request(extra: bytes = b"") -> bytes:
    body = json.dumps({"model": "m", "stream": True}).encode()
    return b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\n%bcontent-length: %d\r\n\r\n%b" % (extra, len(body), body)


def code(body: bytes) -> str:
    """Of an error answer, or of the event that ends a stream."""
    return str(json.loads(body.strip().rpartition(b"\n\n")[2].removeprefix(b"data: "))["error"]["code"])


def replica(setup: Setup, number: int = 0) -> dict[str, object]:
    plane = setup.gateway.plane
    return dict(plane.dispatcher.snapshot(plane.clock())["replicas"][number])


def test_gw_01_02_each_chunk_is_one_flush_and_none_waits_for_the_next() -> None:
    """60 chunks of 247 bytes; the next is sent when the client has the last, so any buffer would stop both for ever.

    Nor does any timer: one of a millisecond would be as many beats, each of which is a turn in which the loop does all
    else that there is to do.
    """
    size = 247

    async def story() -> None:
        taken = asyncio.Semaphore(0)
        sent: list[float] = []

        async def in_step(asked: Asked, wire: Wire) -> None:
            await wire.send(STREAM_HEAD)
            for _ in range(60):
                await taken.acquire()
                piece = delta(f"{len(sent)} ")
                sent.append(beats.seconds)
                await wire.send(chunk(piece.replace(b' "}', b" " + b"x" * (size - len(piece)) + b'"}')))
            await taken.acquire()
            await wire.send(chunk(DONE) + END)

        async with gateway_over(in_step, timeouts=PATIENT) as setup, within(60.0, beat=0.001) as beats:
            reader, writer = await setup.raw()
            writer.write(request())
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            assert b"x-accel-buffering: no" in head and b"cache-control: no-cache" in head
            delays = []
            for _ in range(60):
                taken.release()
                flush = await reader.read(65536)
                assert flush.startswith(b"f7\r\n") and len(flush) == 4 + size + 2, "one chunk, whole, alone"
                delays.append(beats.seconds - sent[-1])
            assert median(delays) < 0.005 and max(delays) < 0.25, delays
            taken.release()
            assert DONE in await reader.readuntil(b"0\r\n\r\n")
            writer.close()

    run(story())


def test_gw_04_the_head_waits_for_no_token_and_nothing_is_compressed() -> None:
    """The engine begins only when the client has the head: however long it thinks, the head is there."""

    async def story() -> None:
        head_seen = asyncio.Event()

        async def thinks(asked: Asked, wire: Wire) -> None:
            assert "accept-encoding" not in asked.headers
            await wire.send(STREAM_HEAD)
            await head_seen.wait()
            await wire.send(chunk(WHOLE) + END)

        async with gateway_over(thinks) as setup:
            reader, writer = await setup.raw()
            writer.write(request(b"accept-encoding: gzip, br\r\n"))
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            assert b"text/event-stream" in head and b"content-encoding" not in head
            head_seen.set()
            assert WHOLE in await reader.readuntil(b"\r\n0\r\n\r\n")
            writer.close()

    run(story())


ZIPPED_HEAD = STREAM_HEAD.replace(b"\r\n\r\n", b"\r\ncontent-encoding: gzip\r\n\r\n")


def test_gw_04_a_compressed_stream_passes_as_it_is() -> None:
    async def zips(asked: Asked, wire: Wire) -> None:
        await wire.send(ZIPPED_HEAD + chunk(b"\x1f\x8b\x08-no") + chunk(b"t-really\n\n") + END)

    async def story() -> None:
        async with gateway_over(zips) as setup:
            response = await setup.chat(stream=True)
            assert response.headers["content-encoding"] == "gzip"
            assert response.body == b"\x1f\x8b\x08-not-really\n\n"

    run(story())


def test_gw_04_plain_and_compressed_are_never_mixed() -> None:
    """A replica whose head said gzip dies before a byte; another would go on in plain text. And the other way round."""

    async def story() -> None:
        head_seen = asyncio.Event()

        async def zips_and_dies(asked: Asked, wire: Wire) -> None:
            await wire.send(ZIPPED_HEAD)
            await head_seen.wait()
            wire.reset()

        async with gateway_over(zips_and_dies, zips_and_dies) as setup:
            reader, writer = await setup.raw()
            writer.write(request())
            assert b"content-encoding: gzip" in await reader.readuntil(b"\r\n\r\n")
            head_seen.set()
            assert await reader.read() == b"", "cut, without the end of its framing"
            assert sum(len(engine.asked) for engine in setup.engines) == 1
            writer.close()

        comment_seen = asyncio.Event()

        async def zips_late(asked: Asked, wire: Wire) -> None:
            await comment_seen.wait()
            await wire.send(ZIPPED_HEAD + chunk(b"\x1f\x8b") + END)

        gateway = GatewaySpec(keep_alive_comment=0.1)
        async with gateway_over(zips_late, gateway=gateway, timeouts=PATIENT) as setup:
            reader, writer = await setup.raw()
            writer.write(request())
            await reader.readuntil(b"\r\n\r\n")
            assert await reader.readuntil(b"\n\n\r\n") == chunk(b": keep-alive\n\n")
            comment_seen.set()
            rest = await reader.readuntil(b"\r\n0\r\n\r\n")
            assert b'"protocol"' in rest and b"\x1f\x8b" not in rest
            writer.close()

    run(story())


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_gw_05_characters_and_line_ends_are_cut_anywhere(end: bytes) -> None:
    """读 is E8 AF BB, cut after E8; a lone CR at a chunk's end; `data:` without a blank; [DONE] glued to its event."""
    first = b'data:{"choices":[{"index":0,"delta":{"content":"\xe8\xaf\xbb"}}]}' + end + end
    second = (
        b": note" + end + b'data: {"choices":[],' + end + b'data: "usage":{"prompt_tokens":3,"completion_tokens":4}}'
    )
    data = first + second + end + end + b"data: [DONE]" + end + end
    cuts = [
        data.index(b"\xe8") + 1,
        len(first) - len(end),
        len(first) - len(end) + 1,
        len(first) + 3,
        data.rindex(b"data: [DONE]") - len(end),
        len(data),
    ]
    pieces = [data[a:b] for a, b in zip([0, *cuts], cuts, strict=False) if a < b]
    assert b"".join(pieces) == data and pieces[0].endswith(b"\xe8")

    async def odd(asked: Asked, wire: Wire) -> None:
        await wire.send(STREAM_HEAD)
        for piece in pieces:
            await wire.send(chunk(piece))
            await asyncio.sleep(0.01)
        await wire.send(END)

    async def story() -> None:
        async with gateway_over(odd) as setup:
            assert (await setup.chat(stream=True, stream_options={"include_usage": True})).body == data
            page = setup.gateway.plane.telemetry.registry.render()
            assert b'kilocard_prompt_tokens_total{model="m"} 3' in page
            assert b'kilocard_generation_tokens_total{model="m"} 4' in page

    run(story())


def test_gw_07_a_client_that_is_killed_after_3_of_100_chunks() -> None:
    """The engine, busy writing, sees the end within a second; counters fall; the replica is not to blame."""

    async def long(asked: Asked, wire: Wire) -> None:
        await wire.send(STREAM_HEAD + chunk(ROLE))
        for number in range(100):
            await wire.send(chunk(delta(f"{number} ")))
            await asyncio.sleep(0.02)

    async def story() -> None:
        async with gateway_over(long) as setup:
            reader, writer = await setup.raw()
            writer.write(request())
            await reader.readuntil(b'"2 "')
            writer.transport.abort()
            asked = setup.engines[0].asked[0]
            async with within(1.0):
                await asked.gone.wait()
            await setup.settles(1.0)
            assert replica(setup)["failures"] == 0 and replica(setup)["in_flight"] == 0
            assert replica(setup)["state"] == "ready"
            assert b'outcome="client_gone"} 1' in setup.gateway.plane.telemetry.registry.render()

    run(story())


def test_gw_17_as_08_comments_go_out_while_a_stream_is_held_and_while_it_is_prefilled() -> None:
    """An outer proxy that cuts at 60 s of silence sees bytes: here each 0.1 s, in a file each 15 s."""
    comment = chunk(b": keep-alive\n\n")

    async def story() -> None:
        turns = asyncio.Semaphore(0)

        async def slow(asked: Asked, wire: Wire) -> None:
            await turns.acquire()
            await answer(asked, wire)

        model = ModelSpec("m", {"p": 1}, hold=HoldSpec(10, 20.0))
        gateway = GatewaySpec(keep_alive_comment=0.1)
        async with gateway_over(slow, model=model, gateway=gateway, timeouts=PATIENT, max_in_flight=1) as setup:
            (engine,) = setup.engines
            first = asyncio.ensure_future(setup.chat(stream=True))
            await until(lambda: engine.asked)
            reader, writer = await setup.raw()
            writer.write(request())
            async with within(5.0):
                head = await reader.readuntil(b"\r\n\r\n")
                assert head.startswith(b"HTTP/1.1 200") and b"text/event-stream" in head
                for _ in range(3):
                    assert await reader.readexactly(len(comment)) == comment
            assert len(engine.asked) == 1, "it is held still"
            turns.release()
            await until(lambda: len(engine.asked) == 2)
            async with within(5.0):
                for _ in range(3):
                    assert await reader.readexactly(len(comment)) == comment
            turns.release()
            rest = await reader.readuntil(b"\r\n0\r\n\r\n")
            assert b"[DONE]" in rest and b"error" not in rest
            assert (await first).body.endswith(WHOLE)
            writer.close()

    run(story())


def test_as_08_a_hold_that_is_over_is_an_event_where_comments_went_out_else_503() -> None:
    async def story() -> None:
        model = ModelSpec("m", {"p": 1}, hold=HoldSpec(10, 5.0))
        for comment in (0.0, 0.1):
            gateway = GatewaySpec(keep_alive_comment=comment)
            async with gateway_over(hang, model=model, gateway=gateway, timeouts=HOURS, max_in_flight=1) as setup:
                first = asyncio.ensure_future(setup.chat())
                await until(lambda: setup.engines[0].asked)
                both = [asyncio.ensure_future(setup.chat(stream=stream)) for stream in (True, False)]
                await until(lambda: setup.gateway.plane.dispatcher.held == 2)
                clock = HandClock(setup)
                await clock.forward(1.0)
                await clock.forward(5.0)
                held, whole = [await one for one in both]
                assert code(held.body) == "hold_timeout"
                assert (held.status, "retry-after" in held.headers) == ((200, False) if comment else (503, True))
                assert whole.status == 503 and int(whole.headers["retry-after"]) >= 1, "not a stream: no comments"
                first.cancel()
                await asyncio.gather(first, return_exceptions=True)

    run(story())


@pytest.mark.parametrize("fault", ["reset", "silence"])
@pytest.mark.parametrize("where", ["before_head", "after_head", "after_role"])
def test_gw_19_20_before_the_first_content_the_client_sees_one_clean_start(where: str, fault: str) -> None:
    """Among them gw-20: 200, a role-only chunk, and then silence."""

    async def sick(asked: Asked, wire: Wire) -> None:
        if where != "before_head":
            await wire.send(STREAM_HEAD)
        if where == "after_role":
            await wire.send(chunk(ROLE.replace(b'"c"', b'"sick"')))
        await asyncio.sleep(0.02)
        if fault == "reset":
            wire.reset()
        else:
            await asked.gone.wait()

    limits = Timeouts(connect=10, first_token=0.6, first_token_per_prompt_token=0, idle=10, total=40)

    async def story() -> None:
        async with gateway_over(sick, answer, timeouts=limits) as setup:
            for _ in range(4):
                response = await setup.chat(stream=True)
                assert (response.status, response.body) == (200, WHOLE)
            assert setup.engines[0].asked, "it was tried"
        async with gateway_over(sick, sick, timeouts=limits) as setup:
            body = (await setup.chat(stream=True)).body
            assert b'"role"' not in body, "not a start without an answer"
            assert code(body) == ("reset" if fault == "reset" else "first_token_timeout")
            assert [len(engine.asked) for engine in setup.engines] == [1, 1]

    run(story())


@pytest.mark.parametrize("fault", ["reset", "silence"])
def test_gw_19_after_content_nothing_is_sent_twice(fault: str) -> None:
    """ "Hel", "lo", then a read time-out; a retry would have sent "Hel" again."""

    limits = Timeouts(connect=10, first_token=10, idle=0.3, total=40)

    async def story() -> None:
        content_seen = asyncio.Event()

        async def breaks(asked: Asked, wire: Wire) -> None:
            await wire.send(STREAM_HEAD + chunk(ROLE) + chunk(delta("Hel")) + chunk(delta("lo")))
            await content_seen.wait()
            if fault == "reset":
                wire.reset()
            else:
                await asked.gone.wait()

        async with gateway_over(breaks, breaks, timeouts=limits) as setup:
            reader, writer = await setup.raw()
            writer.write(request())
            await reader.readuntil(b"\r\n\r\n")
            text = await reader.readuntil(delta("lo"))
            content_seen.set()
            rest = await reader.readuntil(b"\r\n0\r\n\r\n")
            assert ROLE in text and delta("Hel") in text and b'"Hel"' not in rest
            assert (b'"reset"' if fault == "reset" else b'"idle_timeout"') in rest and b"[DONE]" not in rest
            assert sum(len(engine.asked) for engine in setup.engines) == 1
            writer.close()

    run(story())


async def no_token_ever(asked: Asked, wire: Wire) -> None:
    """The API server lives and says 200; the core behind it is dead."""
    if asked.json.get("stream"):
        await wire.send(STREAM_HEAD)
    await asked.gone.wait()


def test_gw_23_an_engine_that_says_200_and_never_a_token_is_out_until_it_makes_one() -> None:
    """Waiting: 3, running: 0, no token, and every page says 200. Health comes from progress."""
    alive = False

    async def core_dead(asked: Asked, wire: Wire) -> None:
        await (answer if alive else no_token_ever)(asked, wire)

    limits = Timeouts(connect=0.5, first_token=0.6, first_token_per_prompt_token=0, per_output_token=0, total=40)
    model = ModelSpec("m", {"p": 1}, eject=EjectSpec(backoff=0.2, backoff_max=0.4))

    async def story() -> None:
        nonlocal alive
        async with gateway_over(core_dead, answer, timeouts=limits, model=model) as setup:
            sick = setup.engines[0]
            sick.metrics = (
                b"vllm:num_requests_running 0\nvllm:num_requests_waiting 3\n"
                b"vllm:kv_cache_usage_perc 0\nvllm:generation_tokens_total 0\n"
            )
            asks = [setup.chat(stream=bool(n % 2), max_tokens=5) for n in range(8)]
            assert Counter(response.status for response in await asyncio.gather(*asks)) == {200: 8}
            assert replica(setup)["state"] in ("ejected", "probing")
            assert "first_token_timeout" in str(replica(setup)["reason"])
            # its pages are fine, and the probe's one token does not come: no client's request goes there
            before = sum(asked.target == "/v1/chat/completions" for asked in sick.asked)
            await until(lambda: any(asked.target == "/v1/completions" for asked in sick.asked))
            assert sick.asked[-1].json == {"model": "m", "prompt": "1", "max_tokens": 1}
            for _ in range(5):
                assert (await setup.chat()).status == 200
            assert sum(asked.target == "/v1/chat/completions" for asked in sick.asked) == before
            alive = True
            sick.metrics = sick.metrics.replace(b"waiting 3", b"waiting 0")
            async with within(30.0):  # a token has 4.5 s, and a handicap 5 s
                while replica(setup)["state"] not in ("ready", "slow_start"):
                    assert (await setup.chat()).status == 200
                    await asyncio.sleep(0.02)

    run(story())


def test_gw_13_a_hung_replica_slows_nobody_for_long() -> None:
    """It accepts connections and says nothing. The others answer as ever; what went there is answered by them."""
    unit = 0.3  # seconds that an answer takes; long beside what a busy machine adds to it
    limits = Timeouts(connect=10, first_token=5 * unit, first_token_per_prompt_token=0, per_output_token=0, total=40)

    async def works(asked: Asked, wire: Wire) -> None:
        await asyncio.sleep(unit)
        await answer(asked, wire)

    async def story() -> None:
        async with gateway_over(hang, works, works, timeouts=limits) as setup, within(60.0) as beats:
            took: dict[int, float] = {}

            async def ask(number: int) -> int:
                began = beats.seconds
                status = (await setup.chat(max_tokens=1)).status
                took[number] = beats.seconds - began
                return status

            assert {await ask(n) for n in range(3)} == {200}
            statuses = await asyncio.gather(*(ask(n) for n in range(3, 60)))
            assert set(statuses) == {200}
            quick = sum(seconds < 4 * unit for seconds in took.values())
            assert quick >= 36, "two of three go to those that answer, and are not behind those that wait"
            assert max(took.values()) < 15 * unit
            assert replica(setup)["state"] != "ready"
            assert set(await asyncio.gather(*(ask(n) for n in range(60, 80)))) == {200}
            assert max(took[n] for n in range(60, 80)) < 4.5 * unit, "and now nobody goes there"

    run(story())


def test_gw_11_kept_connections_outlive_a_balancers_and_do_not_hold_up_a_stop() -> None:
    """A balancer keeps its own for 60 s (nginx 60–75 s): whoever closes first must not be we."""
    assert GatewaySpec().limits.keep_alive >= 75

    async def story() -> None:
        go_on = asyncio.Event()
        async with gateway_over(answers_when(go_on), timeouts=PATIENT, drain=20.0) as setup:
            idle = [await setup.raw() for _ in range(5)]
            used, used_writer = await setup.raw()
            used_writer.write(b"GET /v1/models HTTP/1.1\r\nhost: x\r\n\r\n")
            assert b"connection: close" not in (await used.readuntil(b"\r\n\r\n")).lower()
            reader, writer = await setup.raw()
            body = b'{"model":"m"}'
            writer.write(
                b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)
            )
            await until(lambda: setup.engines[0].asked)
            stop = asyncio.ensure_future(setup.gateway.stop())
            async with within(1.0):
                for quiet, _ in [*idle, (used, used_writer)]:
                    await quiet.read()
            assert not stop.done(), "a request runs still"
            go_on.set()
            whole = await reader.read()
            assert whole.startswith(b"HTTP/1.1 200") and whole.endswith(JSON_ANSWER)
            async with within(1.5):  # nobody waits for clients that ask nothing
                await stop
            for _, one in [*idle, (used, used_writer), (reader, writer)]:
                one.close()

    run(story())


def test_gw_11_answers_during_a_stop_say_that_the_connection_ends() -> None:
    async def story() -> None:
        async with gateway_over(answer, gateway=GatewaySpec(shutdown_delay=1.5)) as setup:
            stop = asyncio.ensure_future(setup.gateway.stop())
            await until(lambda: setup.gateway.plane.draining)
            for body in (b'{"model":"m"}', b'{"model":"m","stream":true}'):
                reader, writer = await setup.raw()
                writer.write(
                    b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)
                )
                response = await reader.read()  # to the end of the connection
                assert response.startswith(b"HTTP/1.1 200") and b"\r\nconnection: close\r\n" in response.lower()
                writer.close()
            assert not stop.done()
            await stop

    run(story())


def test_gw_22_1280_at_once_wait_in_the_gateway_and_a_busy_engine_is_not_a_dead_one() -> None:
    """Two replicas; while the burst lasts neither their health pages nor their metrics answer, but tokens flow."""
    most = 64
    now = [0, 0]
    highest = [0, 0]

    def busy(number: int) -> Script:
        async def script(asked: Asked, wire: Wire) -> None:
            now[number] += 1
            highest[number] = max(highest[number], now[number])
            try:
                await until(lambda: highest[number] >= most)  # nobody is done before there have been so many
                await asyncio.sleep(0.05)
                await answer(asked, wire)
            finally:
                now[number] -= 1

        return script

    async def story() -> None:
        model = ModelSpec("m", {"p": 1}, hold=HoldSpec(2000, 60.0))
        gateway = GatewaySpec(scrape_interval=0.1)
        async with gateway_over(
            busy(0), busy(1), model=model, gateway=gateway, timeouts=HOURS, max_in_flight=most
        ) as setup:
            for engine in setup.engines:
                engine.pages_hang = True
            responses = await asyncio.gather(*(setup.chat() for _ in range(1280)))
            assert Counter(response.status for response in responses) == {200: 1280}
            assert max(highest) <= most and min(highest) == most
            assert {replica(setup, n)["state"] for n in range(2)} == {"ready"}
            assert {replica(setup, n)["failures"] for n in range(2)} == {0}
            for engine in setup.engines:
                engine.pages_hang = False

    run(story())


def test_mt_13_a_metrics_page_that_hangs_with_the_health_page_takes_nobody_out() -> None:
    """Both time out because one event loop is busy. Neither counts; scraping is what is given up; tokens flow."""

    async def story() -> None:
        async with gateway_over(answer, gateway=GatewaySpec(scrape_interval=0.1)) as setup:
            engine: StubEngine = setup.engines[0]
            engine.metrics = b"# page\nvllm:num_requests_running 1\nvllm:num_requests_waiting 0\n"
            poller = setup.gateway.plane
            await until(lambda: replica(setup)["age_s"] is not None)
            engine.pages_hang = True
            engine.pages_asked.clear()
            async with within(20.0):
                while (status := poller.scrape_status("p/0")) is None or status.error is None:  # a scrape has 3 s
                    assert (await setup.chat(stream=True)).body == WHOLE
                    await asyncio.sleep(0.05)
            assert "within 3 s" in status.error
            for _ in range(20):  # and into the next one
                assert (await setup.chat(stream=True)).body == WHOLE
                await asyncio.sleep(0.05)
            assert len(engine.pages_asked) <= 3, "one question at a time, and not more often for want of an answer"
            assert replica(setup)["state"] == "ready" and replica(setup)["failures"] == 0
            engine.pages_hang = False

    run(story())
