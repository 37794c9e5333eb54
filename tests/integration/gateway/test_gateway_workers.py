"""Several workers on one port, as real processes: they share loads, and one that dies takes only its own with it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from pathlib import Path

from stub_engine import StubEngine, answer, answers_when, hang, run
from worker_processes import alive, port_is_free, workers_over

from kilocard.core.errors import UpstreamError
from kilocard.dispatch.replay import check
from kilocard.workers.hand import GOODBYE


def test_two_workers_answer_on_one_port_and_count_as_one_gateway(tmp_path: Path) -> None:
    async def body() -> None:
        async with workers_over(tmp_path, answer, answer) as workers:
            answers = await asyncio.gather(*[workers.chat() for _ in range(40)])
            assert {each.status for each in answers} == {200}
            # each process makes its own ids: both have served
            assert len({each.headers["x-request-id"].split("-")[1] for each in answers}) == 2
            assert await workers.metric("kilocard_requests_total") == 40
            assert await workers.metric("kilocard_workers") == 2
            assert (await workers.get("/readyz")).status == 200

            async def at_rest() -> bool:
                state = await workers.state()
                return all(row["in_flight"] == 0 for row in [state["gateway"], *state["replicas"]])

            await workers.until(at_rest)

    run(body())


def test_32_slow_requests_at_once_over_4_replicas_from_4_workers(tmp_path: Path) -> None:
    async def body() -> None:
        async with workers_over(tmp_path, *[hang] * 4, count=4) as workers:
            asking = [asyncio.ensure_future(workers.chat()) for _ in range(32)]

            async def all_there() -> bool:
                return sum(workers.running) == 32

            await workers.until(all_there)
            # the kernel deals connections out by chance, so each worker has had a part that is not divisible by 4
            assert max(workers.running) - min(workers.running) <= 4, workers.running
            state = await workers.state()
            assert sorted(row["in_flight"] for row in state["replicas"]) == sorted(workers.running)
            assert sum(row["in_flight"] for row in state["gateway"]["workers"]) == 32
            for each in asking:
                each.cancel()
            await asyncio.gather(*asking, return_exceptions=True)

    run(body())


def test_each_worker_has_a_decision_log_that_replays(tmp_path: Path) -> None:
    async def body() -> None:
        gateway = {"record": str(tmp_path / "decisions")}
        async with workers_over(tmp_path, answer, answer, gateway=gateway, pool={"max_in_flight": 3}) as workers:
            answers = await asyncio.gather(*[workers.chat() for _ in range(60)])
            assert {each.status for each in answers} == {200}

    run(body())
    found = [
        check(json.loads(line) for line in (tmp_path / f"decisions.w{slot}").read_text().splitlines())
        for slot in (0, 1)
    ]
    assert sum(parity.requests for parity in found) == 60
    assert [parity.differing for parity in found] == [0, 0], [parity.shown for parity in found]


def test_max_in_flight_holds_for_all_workers_together(tmp_path: Path) -> None:
    async def body() -> None:
        most = [0, 0]

        async with workers_over(tmp_path, answer, answer, count=3, pool={"max_in_flight": 4}) as workers:

            def script(engine: int):  # type: ignore[no-untyped-def]  # a Script
                async def slow(asked, wire) -> None:  # type: ignore[no-untyped-def]  # a Script
                    most[engine] = max(most[engine], workers.running[engine])
                    await asyncio.sleep(0.05)
                    await answer(asked, wire)
                    asked.gone.set()

                return slow

            for number, engine in enumerate(workers.engines):
                engine.script = script(number)
            answers = await asyncio.gather(*[workers.chat() for _ in range(80)])
            assert {each.status for each in answers} == {200}
            assert most == [4, 4]

    run(body())


def test_a_killed_worker_takes_its_own_requests_with_it_and_is_replaced(tmp_path: Path) -> None:
    async def body() -> None:
        async with workers_over(tmp_path, hang, hang) as workers:
            asking = await workers.on_all(16)
            victim, other = await workers.workers()
            os.kill(victim["pid"], signal.SIGKILL)
            rows = await workers.restarted(0)
            assert rows[0]["pid"] != victim["pid"]
            assert rows[1]["pid"] == other["pid"]
            assert (rows[0]["restarts"], rows[0]["in_flight"]) == (1, 0)
            assert rows[1]["in_flight"] == other["in_flight"]
            assert await workers.metric("kilocard_worker_exits_total") == 1

            async def engines_know() -> bool:
                return sum(workers.running) == other["in_flight"]

            await workers.until(engines_know)
            cut = [each for each in asking if each.done()]
            assert len(cut) == victim["in_flight"]
            assert all(isinstance(each.exception(), UpstreamError) for each in cut)
            for engine in workers.engines:
                engine.script = answer
            assert {each.status for each in await asyncio.gather(*[workers.chat() for _ in range(20)])} == {200}
            for each in asking:
                each.cancel()
            await asyncio.gather(*asking, return_exceptions=True)

    run(body())


def test_no_counter_falls_and_nobody_is_refused_when_a_worker_is_killed(tmp_path: Path) -> None:
    async def body() -> None:
        async with workers_over(tmp_path, answer) as workers:
            await asyncio.gather(*[workers.chat() for _ in range(30)])
            assert await workers.metric("kilocard_requests_total") == 30
            os.kill((await workers.workers())[0]["pid"], signal.SIGKILL)
            # connections that are dealt to the dead one's socket wait there for the next worker
            answers = await asyncio.gather(*[workers.chat() for _ in range(30)])
            assert {each.status for each in answers} == {200}
            await workers.restarted(0)
            assert await workers.metric("kilocard_requests_total") == 60
            await asyncio.sleep(GOODBYE + 0.5)  # what ends the old process must not end its successor
            assert (await workers.workers())[0]["restarts"] == 1

    run(body())


def test_a_worker_that_hangs_is_killed(tmp_path: Path) -> None:
    async def body() -> None:
        async with asyncio.timeout(110), workers_over(tmp_path, answer) as workers:
            victim = (await workers.workers())[1]["pid"]
            os.kill(victim, signal.SIGSTOP)
            await workers.restarted(1)
            assert not alive(victim)
            assert 'kilocard_worker_exits_total{cause="hung"} 1' in (await workers.get("/metrics")).body.decode()

    run_longer(body())


def run_longer(body) -> None:  # type: ignore[no-untyped-def]  # any coroutine
    import uvloop

    uvloop.run(body)


def test_a_killed_supervisor_leaves_no_process_and_running_requests_finish(tmp_path: Path) -> None:
    async def body() -> None:
        done = asyncio.Event()
        async with workers_over(tmp_path, answers_when(done), gateway={"drain": "30s"}) as workers:
            asking = asyncio.ensure_future(workers.chat())

            async def there() -> bool:
                return sum(workers.running) == 1

            await workers.until(there)
            pids = [row["pid"] for row in await workers.workers()]
            workers.process.kill()
            await workers.process.wait()

            async def closed() -> bool:
                return port_is_free(workers.port)

            await workers.until(closed)
            done.set()
            assert (await asking).status == 200

            async def gone() -> bool:
                return not any(alive(pid) for pid in pids)

            await workers.until(gone)

    run(body())


def test_sigterm_drains_all_workers(tmp_path: Path) -> None:
    async def body() -> None:
        done = asyncio.Event()
        async with workers_over(tmp_path, answers_when(done), gateway={"drain": "30s"}) as workers:
            asking = [asyncio.ensure_future(workers.chat()) for _ in range(6)]

            async def there() -> bool:
                return sum(workers.running) == 6

            await workers.until(there)
            workers.process.send_signal(signal.SIGTERM)

            async def not_ready() -> bool:
                return (await workers.get("/readyz")).status == 503

            await workers.until(not_ready)

            async def closed() -> bool:
                return port_is_free(workers.port)

            await workers.until(closed)
            done.set()
            assert {each.status for each in await asyncio.gather(*asking)} == {200}
            assert await asyncio.wait_for(workers.process.wait(), 40) == 0

    run(body())


def test_a_second_signal_ends_all_at_once(tmp_path: Path) -> None:
    async def body() -> None:
        async with workers_over(tmp_path, hang, gateway={"drain": "100s"}) as workers:
            asking = asyncio.ensure_future(workers.chat())

            async def there() -> bool:
                return sum(workers.running) == 1

            await workers.until(there)
            pids = [row["pid"] for row in await workers.workers()]
            workers.process.send_signal(signal.SIGINT)
            workers.process.send_signal(signal.SIGTERM)  # two of one kind may become one
            assert await asyncio.wait_for(workers.process.wait(), 40) == 130

            async def gone() -> bool:
                return not any(alive(pid) for pid in pids)

            await workers.until(gone)
            with contextlib.suppress(UpstreamError):
                await asking

    run(body())


def test_a_second_gateway_on_the_port_is_refused(tmp_path: Path) -> None:
    async def body() -> None:
        async with workers_over(tmp_path, answer) as workers:
            for count in ("1", "2"):
                process = await asyncio.create_subprocess_exec(
                    *[sys.executable, "-m", "kilocard", "gateway", str(tmp_path / "cluster.yaml"), "--workers", count],
                    *["--port", str(workers.port), "--admin-port", "0"],
                    stderr=asyncio.subprocess.PIPE,
                )
                _, said = await asyncio.wait_for(process.communicate(), 60)
                assert process.returncode == 1
                assert f"can't listen on 127.0.0.1:{workers.port}" in said.decode()

    run(body())


def test_38_a_poison_request_kills_no_more_replicas_through_two_workers_than_through_one(tmp_path: Path) -> None:
    async def body() -> None:
        ends = set()

        async with workers_over(tmp_path, *[answer] * 6) as workers:

            def script(engine: StubEngine):  # type: ignore[no-untyped-def]  # a Script
                async def mortal(asked, wire) -> None:  # type: ignore[no-untyped-def]  # a Script
                    if b"poison" not in asked.body:
                        await answer(asked, wire)
                        return
                    wire.reset()
                    ends.add(asyncio.ensure_future(engine.stop()))
                    await asyncio.sleep(5)

                return mortal

            for engine in workers.engines:
                engine.script = script(engine)
            statuses = [(await workers.chat("poison")).status for _ in range(12)]
            assert len(ends) == 2
            assert set(statuses[1:]) == {422}, statuses
            # a worker that was not there then refuses it too
            os.kill((await workers.workers())[0]["pid"], signal.SIGKILL)
            await workers.restarted(0)
            assert {(await workers.chat("poison")).status for _ in range(12)} == {422}
            (row,) = (await workers.state())["quarantine"]
            assert row["refused"] >= 12
            assert {(await workers.chat()).status for _ in range(12)} == {200}

    run(body())


def test_what_one_worker_has_ejected_the_others_leave_alone(tmp_path: Path) -> None:
    async def body() -> None:
        async with workers_over(tmp_path, answer, answer, answer, count=3) as workers:
            await workers.engines[0].stop()
            url = workers.engines[0].url

            async def known() -> bool:
                await workers.chat()  # one of three workers meets the dead replica first
                (row,) = (row for row in (await workers.state())["replicas"] if row["url"] == url)
                return row["state"] == "ejected" and "workers" not in row

            await workers.until(known)
            page = (await workers.get("/metrics")).body.decode()
            assert 'state="ejected"} 1.0' in page
            # all three have it from one refused connection; without word from each other it takes three
            assert await workers.metric("kilocard_retries_total") <= 2

    run(body())


def test_a_worker_that_dies_again_and_again_is_told_of_and_the_others_serve_on(tmp_path: Path) -> None:
    async def body() -> None:
        async with workers_over(tmp_path, answer) as workers:
            pid = 0

            async def another() -> bool:
                row = (await workers.workers())[0]
                return row["state"] == "serving" and row["pid"] != pid

            for _ in range(5):
                await workers.until(another)
                pid = (await workers.workers())[0]["pid"]
                os.kill(pid, signal.SIGKILL)

            async def told() -> bool:
                return (await workers.workers())[0]["state"] == "crash_loop"

            await workers.until(told)

            async def said() -> bool:  # the line takes a way of its own, and may come later
                return "worker 0 has died 5 times in a row" in workers.said

            await workers.until(said)
            # its socket is closed: no connection waits in it for the next one, 4 s after the fifth death
            async with asyncio.timeout(3):
                answers = await asyncio.gather(*[workers.chat() for _ in range(30)])
            assert {each.status for each in answers} == {200}
            await workers.until(another)
            answers = await asyncio.gather(*[workers.chat() for _ in range(30)])
            assert len({each.headers["x-request-id"].split("-")[1] for each in answers}) == 2

    run(body())


def test_a_worker_that_is_told_to_end_drains_and_gets_a_successor(tmp_path: Path) -> None:
    async def body() -> None:
        done = asyncio.Event()
        async with workers_over(tmp_path, answers_when(done), gateway={"drain": "30s"}) as workers:
            asking = await workers.on_all(12)
            pid = (await workers.workers())[0]["pid"]
            os.kill(pid, signal.SIGTERM)

            async def retiring() -> bool:
                return (await workers.workers())[0]["state"] == "retiring"

            await workers.until(retiring)
            workers.engines[0].script = answer
            async with asyncio.timeout(20):  # the other one takes them all
                assert {(await workers.chat()).status for _ in range(12)} == {200}
            done.set()
            assert {each.status for each in await asyncio.gather(*asking)} == {200}

            async def succeeded() -> bool:
                row = (await workers.workers())[0]
                return row["state"] == "serving" and row["pid"] != pid

            await workers.until(succeeded)
            assert await workers.metric("kilocard_worker_exits_total") == 0
            assert "ERROR" not in workers.said

    run(body())


def test_a_hangup_that_goes_to_all_processes_is_a_reload_and_ends_no_worker(tmp_path: Path) -> None:
    """As `systemctl kill -s HUP` sends it, or a terminal that is closed."""

    async def body() -> None:
        done = asyncio.Event()
        async with workers_over(tmp_path, answers_when(done), gateway={"drain": "30s"}) as workers:
            asking = await workers.on_all(6)
            before = [row["pid"] for row in await workers.workers()]
            for pid in [*before, workers.process.pid]:
                os.kill(pid, signal.SIGHUP)

            async def reloaded() -> bool:
                return await workers.metric('kilocard_config_reloads_total{outcome="ok"}') >= 1

            await workers.until(reloaded)
            done.set()
            assert {each.status for each in await asyncio.gather(*asking)} == {200}
            assert [row["pid"] for row in await workers.workers()] == before

    run(body())
