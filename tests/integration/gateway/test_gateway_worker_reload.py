"""The cluster file changes while several workers serve: judged once, in force in all of them."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
from pathlib import Path

import yaml
from stub_engine import StubEngine, answer, run
from worker_processes import Workers, workers_over

from kilocard.net.client import Response, fetch


async def reload(workers: Workers) -> Response:
    return await fetch(f"http://127.0.0.1:{workers.admin_port}/reload", method="POST", timeout=10)


def test_replicas_are_exchanged_under_requests_and_none_is_lost(tmp_path: Path) -> None:
    async def body() -> None:
        async with workers_over(tmp_path, answer) as workers:
            fresh = StubEngine(answer)
            await fresh.start()
            old = workers.engines[0]
            stop = asyncio.Event()
            statuses: set[int] = set()

            async def load() -> None:
                while not stop.is_set():
                    statuses.add((await workers.chat()).status)

            loading = [asyncio.ensure_future(load()) for _ in range(8)]
            file = tmp_path / "cluster.yaml"
            spec = yaml.safe_load(file.read_text())
            spec["pools"]["p"]["endpoints"] = [fresh.url]
            file.write_text(yaml.safe_dump(spec))
            told = await reload(workers)
            assert (told.status, json.loads(told.body)["changed"]) == (200, ["pools.p.endpoints"])

            async def exchanged() -> bool:
                state = await workers.state()
                return [row["url"] for row in state["replicas"]] == [fresh.url] and bool(fresh.asked)

            await workers.until(exchanged)
            before = len(old.asked)
            await asyncio.sleep(0.3)
            assert len(old.asked) == before
            stop.set()
            await asyncio.gather(*loading)
            assert statuses == {200}
            config = (await workers.state())["gateway"]["config"]
            assert (config["generation"], config["error"]) == (2, None)
            assert [row["restarts"] for row in await workers.workers()] == [0, 0]
            assert await workers.metric("kilocard_config_generation") == 2
            await fresh.stop()

    run(body())


def test_a_bad_file_changes_nothing_in_any_worker(tmp_path: Path) -> None:
    async def body() -> None:
        async with workers_over(tmp_path, answer) as workers:
            (tmp_path / "cluster.yaml").write_text("models: {m: {policy: best}}\n")
            assert (await reload(workers)).status == 400
            answers = await asyncio.gather(*[workers.chat() for _ in range(10)])
            assert {each.status for each in answers} == {200}
            assert "policy" in (await workers.state())["gateway"]["config"]["error"]

    run(body())


def test_a_hangup_brings_a_new_model_and_a_new_worker_has_it_too(tmp_path: Path) -> None:
    async def body() -> None:
        async with workers_over(tmp_path, answer) as workers:
            file = tmp_path / "cluster.yaml"
            spec = yaml.safe_load(file.read_text())
            spec["models"]["second"] = {"pools": {"p": 1}}
            spec["pools"]["p"]["max_in_flight"] = 3
            file.write_text(yaml.safe_dump(spec))
            workers.process.send_signal(signal.SIGHUP)

            async def known() -> bool:
                state = await workers.state()
                return [m["id"] for m in state["models"]] == ["m", "second"] and state["replicas"][0]["limit"] == 3

            await workers.until(known)
            answers = await asyncio.gather(*[workers.chat() for _ in range(20)])
            assert {each.status for each in answers} == {200}
            victim = (await workers.workers())[1]["pid"]
            os.kill(victim, signal.SIGKILL)
            await workers.restarted(1)
            await workers.until(known)

    run(body())


def test_an_endpoint_that_does_not_answer_is_shown_with_the_reason(tmp_path: Path) -> None:
    async def body() -> None:
        with socket.socket() as place:  # nobody else gets the port, and nobody listens on it
            place.bind(("127.0.0.1", 0))
            nobody = f"http://127.0.0.1:{place.getsockname()[1]}"
            async with workers_over(tmp_path, answer) as workers:
                file = tmp_path / "cluster.yaml"
                spec = yaml.safe_load(file.read_text())
                spec["pools"]["p"]["endpoints"].append(nobody)
                file.write_text(yaml.safe_dump(spec))
                assert (await reload(workers)).status == 200

                async def shown() -> bool:
                    rows = {row["url"]: row for row in (await workers.state())["replicas"]}
                    return nobody in rows and "can't connect" in rows[nobody]["reason"]

                await workers.until(shown)
                states = {row["url"]: row["state"] for row in (await workers.state())["replicas"]}
                assert states.pop(nobody) == "not_ready"
                assert set(states) == {workers.engines[0].url} and "not_ready" not in states.values()

    run(body())
