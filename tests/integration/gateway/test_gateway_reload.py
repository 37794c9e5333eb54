"""The cluster file changes while requests run: real files, real sockets, and nobody notices but those it is about."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import logging
import os
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from stub_engine import (
    DONE,
    END,
    ROLE,
    STREAM_HEAD,
    Asked,
    Script,
    Setup,
    StubEngine,
    Wire,
    answer,
    chunk,
    delta,
    run,
    until,
)

from kilocard.core.errors import KilocardError, SpecError
from kilocard.gateway.reloader import Reloaded, Reloader
from kilocard.gateway.server import Gateway
from kilocard.net.client import fetch
from kilocard.scrape.discovery.configured import configured
from kilocard.spec.load import Digests, load
from kilocard.spec.model import ClusterSpec

GATEWAY = 'gateway: {listen: "127.0.0.1:0", admin: "127.0.0.1:0", drain: 2s, scrape_interval: 100ms%s}\n'


def cluster(endpoints: list[str], *, gateway: str = "", model: str = "", rest: str = "") -> str:
    urls = ", ".join(f'"{url}"' for url in endpoints)
    return (
        GATEWAY % (gateway and ", " + gateway)
        + f"models: {{m: {{pools: {{p: 1}}{model and ', ' + model}}}}}\n"
        + f"pools:\n  p: {{engine: vllm, endpoints: [{urls}]}}\n{rest}"
    )


class FromFile(Setup):
    """A gateway that follows a file, looked at when the test says so."""

    def __init__(self, gateway: Gateway, engines: list[StubEngine], file: Path, reloader: Reloader) -> None:
        super().__init__(gateway, engines)
        self.file = file
        self.reloader = reloader

    @property
    def admin(self) -> str:
        return f"http://127.0.0.1:{self.gateway.admin_port}"

    def replicas(self) -> set[str]:
        return set(self.gateway.plane.targets)

    async def until(self, replicas: int) -> None:
        async with asyncio.timeout(30):
            while len(self.replicas()) != replicas:
                await asyncio.sleep(0.01)

    async def reload(self, text: str) -> Reloaded:
        self.file.write_text(text)
        return await self.reloader.reload()


@contextlib.asynccontextmanager
async def following(file: Path, engines: int = 2, script: Script = answer) -> AsyncIterator[FromFile]:
    stubs = [StubEngine(script) for _ in range(engines)]
    for stub in stubs:
        await stub.start()
    file.write_text(cluster([stub.url for stub in stubs]))  # noqa: ASYNC240  # a small file of the test's own
    digests: Digests = {}
    one = Gateway(load(file, digests=digests), sources=configured)

    async def apply(spec: ClusterSpec) -> Reloaded:
        return one.reload(spec)

    one.reloader = Reloader(one.plane.config, lambda found: load(file, digests=found), apply, digests)
    await one.start()
    await one.reloader.close()  # the tests look themselves
    setup = FromFile(one, stubs, file, one.reloader)
    try:
        await setup.until(engines)
        yield setup
        assert await setup.settles(), "something is still under way or not given back"
    finally:
        await one.stop()
        for stub in stubs:
            await stub.stop()


def gated(gate: asyncio.Event) -> Any:
    async def script(asked: Asked, wire: Wire) -> None:
        await wire.send(STREAM_HEAD + chunk(ROLE) + chunk(delta("one")))
        await gate.wait()
        await wire.send(chunk(delta("two")) + chunk(DONE) + END)

    return script


def test_a_removed_endpoint_drains_and_is_forgotten_when_its_stream_has_ended(tmp_path: Path) -> None:
    async def story() -> None:
        gate = asyncio.Event()
        async with following(tmp_path / "c.yaml", script=gated(gate)) as setup:
            first = asyncio.ensure_future(setup.chat(stream=True))
            await until(lambda: any(engine.asked for engine in setup.engines))
            used, other = sorted(setup.engines, key=lambda engine: -len(engine.asked))
            done = await setup.reload(cluster([other.url]))
            assert done.changed == ["pools.p.replicas.min", "pools.p.replicas.max", "pools.p.endpoints"]
            assert len(setup.replicas()) == 2, "its stream is still running"
            second = asyncio.ensure_future(setup.chat(stream=True))
            await until(lambda: other.asked)
            assert (len(used.asked), len(other.asked)) == (1, 1), "no new request for who leaves"
            gate.set()
            for body in ((await first).body, (await second).body):
                assert b"one" in body and b"two" in body and body.endswith(DONE)
            await setup.until(1)
            assert not used.open_connections or await closes(used)

    run(story())


async def closes(engine: StubEngine) -> bool:
    await until(lambda: not engine.open_connections)
    return True


def test_an_endpoint_that_comes_back_while_it_drains_keeps_its_counts(tmp_path: Path) -> None:
    async def story() -> None:
        gate = asyncio.Event()
        async with following(tmp_path / "c.yaml", script=gated(gate)) as setup:
            text = setup.file.read_text()
            running = [asyncio.ensure_future(setup.chat(stream=True)) for _ in range(4)]
            await until(lambda: sum(setup.in_flight().values()) == 4)
            before = setup.in_flight()
            await setup.reload(cluster([setup.engines[0].url]))
            await setup.reload(text)
            await asyncio.sleep(0.1)
            assert setup.in_flight() == before == dict.fromkeys(before, 2)
            gate.set()
            assert all(b"two" in answer.body for answer in await asyncio.gather(*running))

    run(story())


def test_new_models_pools_tenants_and_timeouts_hold_from_the_next_request_on(tmp_path: Path) -> None:
    async def story() -> None:
        async with following(tmp_path / "c.yaml", engines=1) as setup:
            late = StubEngine(answer)
            late.listed = b'{"data":[{"id":"inner"}]}'
            await late.start()
            assert (await setup.post({"model": "n", "prompt": "x"}, "/v1/completions")).status == 404
            digest = hashlib.sha256(b"sesame").hexdigest()
            rest = (
                f'  q: {{engine: vllm, endpoints: ["{late.url}"], served_model_name: inner}}\n'
                f'tenants: {{t: {{keys: ["sha256:{digest}"]}}}}\n'
            )
            text = cluster([setup.engines[0].url], gateway="timeouts: {total: 7s}, limits: {body: 1000}", rest=rest)
            await setup.reload(text.replace("models: {m:", "models: {n: {pools: {q: 1}}, m:"))
            await setup.until(2)
            assert (await setup.chat()).status == 401
            key = [("authorization", "Bearer sesame")]
            asked = await setup.post({"model": "n", "prompt": "x"}, "/v1/completions", headers=key)
            assert asked.status == 200 and late.asked[0].json["model"] == "inner"
            assert (await setup.post(b"x" * 1001, headers=key)).status == 413
            page = (await fetch(setup.admin + "/metrics", timeout=2)).body.decode()
            assert 'kilocard_requests_total{model="n",pool="q",outcome="ok"} 1' in page
            await setup.reload(cluster([setup.engines[0].url]))
            assert (await setup.chat()).status == 200, "without tenants nobody needs a key"
            assert (await setup.post({"model": "n", "prompt": "x"}, "/v1/completions")).status == 404
            await setup.until(1)
            await late.stop()

    run(story())


def test_a_kept_connection_is_held_to_the_new_limits(tmp_path: Path) -> None:
    async def story() -> None:
        async with following(tmp_path / "c.yaml", engines=1) as setup:
            reader, writer = await setup.raw()
            body = b'{"model":"m","prompt":"%b"}' % (b"x" * 2000)
            request = b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)
            for status in (b"200", b"413"):
                writer.write(request)
                head = await reader.readuntil(b"\r\n\r\n")
                assert head.startswith(b"HTTP/1.1 " + status)
                length = re.search(rb"content-length: (\d+)", head)
                assert length is not None
                await reader.readexactly(int(length[1]))
                if status == b"200":
                    await setup.reload(cluster([setup.engines[0].url], gateway="limits: {body: 1000}"))
            writer.close()

    run(story())


def test_what_a_tenant_has_used_stays_counted(tmp_path: Path) -> None:
    async def story() -> None:
        async with following(tmp_path / "c.yaml", engines=1) as setup:
            digest = hashlib.sha256(b"sesame").hexdigest()
            key = [("authorization", "Bearer sesame")]

            async def limited_to(count: int) -> None:
                tenant = f'{{keys: ["sha256:{digest}"], limits: {{requests_per_minute: {count}}}}}'
                await setup.reload(cluster([setup.engines[0].url], rest=f"tenants: {{t: {tenant}}}\n"))

            async def statuses(count: int) -> list[int]:
                ask = {"model": "m", "prompt": "x"}
                return [(await setup.post(ask, "/v1/completions", headers=key)).status for _ in range(count)]

            await limited_to(2)
            assert await statuses(3) == [200, 200, 429]
            await limited_to(3)
            assert await statuses(2) == [200, 429]
            await limited_to(1)
            assert await statuses(1) == [429]

    run(story())


def test_42_a_bad_file_changes_nothing_and_says_all_that_is_wrong(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """ai-gateway#2489: half of a configuration was published. Here it is judged as a whole, then swapped."""

    async def story() -> None:
        async with following(tmp_path / "c.yaml") as setup:
            setup.file.write_text(cluster(["http://127.0.0.1:1"], model="policy: best").replace("vllm", "nosuch"))
            for _ in range(3):
                answer = await fetch(setup.admin + "/reload", method="POST", timeout=5)
                told = json.loads(answer.body)
                assert answer.status == 400 and told["error"]["code"] == "invalid_cluster_file"
                assert {p["path"] for p in told["problems"]} == {"models.m.policy", "pools.p.engine"}
                assert all(problem["line"] and problem["advice"] for problem in told["problems"])
            assert (await setup.chat()).status == 200 and len(setup.replicas()) == 2
            config = json.loads((await fetch(setup.admin + "/state", timeout=5)).body)["gateway"]["config"]
            assert "models.m.policy" in config["error"] and (config["generation"], config["failures"]) == (1, 3)
            page = (await fetch(setup.admin + "/metrics", timeout=5)).body
            assert b"kilocard_config_last_reload_successful 0" in page
            assert b'kilocard_config_reloads_total{outcome="failed"} 3' in page
            assert len([r for r in caplog.records if "not taken over" in r.getMessage()]) == 1, "once for each content"
            setup.file.write_text(cluster([engine.url for engine in setup.engines], model="policy: round_robin"))
            answer = await fetch(setup.admin + "/reload", method="POST", timeout=5)
            assert answer.status == 200 and json.loads(answer.body)["changed"] == ["models.m.policy"]
            config = json.loads((await fetch(setup.admin + "/state", timeout=5)).body)["gateway"]["config"]
            assert config["error"] is None and config["generation"] == 2

    caplog.set_level(logging.INFO)
    run(story())


def test_what_needs_a_restart_is_said_and_the_rest_is_taken_over(tmp_path: Path) -> None:
    async def story() -> None:
        async with following(tmp_path / "c.yaml") as setup:
            text = setup.file.read_text().replace('listen: "127.0.0.1:0"', 'listen: "127.0.0.1:7"')
            setup.file.write_text(text.replace("drain: 2s", "drain: 3s"))
            told = json.loads((await fetch(setup.admin + "/reload", method="POST", timeout=5)).body)
            assert told["needs_restart"] == ["gateway.listen"] and told["changed"] == ["gateway.drain"]
            config = json.loads((await fetch(setup.admin + "/state", timeout=5)).body)["gateway"]["config"]
            assert config["needs_restart"] == ["gateway.listen"]
            assert (await setup.chat()).status == 200

    run(story())


def test_reload_takes_post_only(tmp_path: Path) -> None:
    async def story() -> None:
        async with following(tmp_path / "c.yaml") as setup:
            assert (await fetch(setup.admin + "/reload", timeout=5)).status == 405
            setup.gateway.reloader = None
            assert (await fetch(setup.admin + "/reload", method="POST", timeout=5)).status == 404

    run(story())


# --- the watch: content, twice the same


def test_a_file_is_taken_over_once_it_lies_still(tmp_path: Path) -> None:
    async def story() -> None:
        async with following(tmp_path / "c.yaml") as setup:
            text = cluster([engine.url for engine in setup.engines], model="policy: round_robin")
            policy = lambda: setup.gateway.spec.models["m"].policy  # noqa: E731  # a name for one look
            for end in (10, len(text) // 2, len(text)):  # a slow writer
                setup.file.write_text(text[:end])
                await setup.reloader.look()
                assert policy() == "queue_depth" and not setup.reloader.status.failures
            await setup.reloader.look()
            assert policy() == "round_robin"
            os.utime(setup.file)
            for _ in range(3):
                await setup.reloader.look()
            assert setup.reloader.status.successes == 1, "another time is no other content"

    run(story())


def test_an_editors_rename_a_gap_and_the_symbolic_links_of_a_configmap(tmp_path: Path) -> None:
    async def story() -> None:
        async with following(tmp_path / "c.yaml") as setup:
            urls = [engine.url for engine in setup.engines]

            async def seen(policy: str) -> None:
                await setup.reloader.look()
                await setup.reloader.look()
                assert setup.gateway.spec.models["m"].policy == policy

            new = tmp_path / "c.yaml.tmp"
            new.write_text(cluster(urls, model="policy: round_robin"))
            new.rename(setup.file)
            await seen("round_robin")

            setup.file.unlink()  # some editors leave a gap
            await seen("round_robin")
            assert "no such file" in str(setup.reloader.status.error)
            setup.file.write_text(cluster(urls, model="policy: adaptive"))
            await seen("adaptive")

            setup.file.unlink()
            for number, policy in enumerate(["least_connections", "queue_depth"]):
                data = tmp_path / f"..data_{number}"
                data.mkdir()
                (data / "c.yaml").write_text(cluster(urls, model=f"policy: {policy}"))
                link = tmp_path / "..data_tmp"
                link.symlink_to(data.name)
                link.rename(tmp_path / "..data")
                if not setup.file.is_symlink():
                    setup.file.symlink_to("..data/c.yaml")
                await seen(policy)

    run(story())


def test_files_that_are_extended_count_too_missing_ones_included(tmp_path: Path) -> None:
    async def story() -> None:
        async with following(tmp_path / "c.yaml") as setup:
            text = setup.file.read_text()
            (tmp_path / "base.yaml").write_text(text)
            setup.file.write_text("extends: base.yaml\nmodels: {m: {policy: round_robin}}\n")
            await setup.reloader.reload()
            assert setup.gateway.spec.models["m"].policy == "round_robin"
            (tmp_path / "base.yaml").write_text(text.replace("drain: 2s", "drain: 9s"))
            await setup.reloader.look()
            await setup.reloader.look()
            assert setup.gateway.spec.gateway.drain == 9.0
            (tmp_path / "base.yaml").unlink()
            with pytest.raises(SpecError):
                await setup.reloader.reload()
            (tmp_path / "base.yaml").write_text(text)
            await setup.reloader.look()
            await setup.reloader.look()
            assert setup.gateway.spec.gateway.drain == 2.0 and setup.reloader.status.error is None

    run(story())


# --- under load


def test_reloads_under_load_fail_no_request_and_leave_nothing_behind(tmp_path: Path) -> None:
    """Every 200 ms another file, every fifth one broken; endpoints, policies, pools and bounds come and go."""

    async def stream(asked: Asked, wire: Wire) -> None:
        await wire.send(STREAM_HEAD + chunk(ROLE))
        for _ in range(5):
            await wire.send(chunk(delta("tick")))
            await asyncio.sleep(0.01)
        await wire.send(chunk(DONE) + END)

    async def story() -> None:
        async with following(tmp_path / "c.yaml", engines=4, script=stream) as setup:
            urls = [engine.url for engine in setup.engines]
            one = cluster(urls[:2], rest=f'  q: {{engine: vllm, endpoints: ["{urls[2]}"]}}\n').replace(
                "pools: {p: 1}", "pools: {p: 2, q: 1}"
            )
            other = cluster([urls[1], urls[3]], model="policy: least_connections, hold: {max: 500}")
            over = False
            answered = 0
            go_on = asyncio.Event()
            go_on.set()

            async def client() -> None:
                nonlocal answered
                while not over:
                    await go_on.wait()
                    answer = await setup.chat(stream=True)
                    assert answer.status == 200, answer.body
                    assert answer.body.count(b"tick") == 5 and answer.body.endswith(DONE), answer.body
                    answered += 1

            async def reloads(times: int) -> None:
                for number in range(times):
                    text = "pools: [" if number % 5 == 4 else (one, other)[number % 2]
                    with contextlib.suppress(KilocardError):
                        await setup.reload(text)
                    await asyncio.sleep(0.2)

            async def left() -> tuple[int, int]:
                """Descriptors and tasks, once the clients rest."""
                go_on.clear()
                await setup.settles()
                go_on.set()
                return len(os.listdir("/proc/self/fd")), len(asyncio.all_tasks())

            clients = [asyncio.ensure_future(client()) for _ in range(20)]
            await reloads(10)
            marks = []
            for _ in range(2):
                await reloads(10)
                marks.append(await left())
            await until(lambda: answered > 200)
            over = True
            await asyncio.gather(*clients)
            assert setup.reloader.status.failures == 6
            # descriptors and tasks breathe with the load, but they don't grow with the reloads
            assert marks[1][0] <= marks[0][0] + 60 and marks[1][1] <= marks[0][1] + 40, marks
            await setup.reload(other)
            await setup.until(2)

    run(story())


def test_sighup_reloads_a_running_process(tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    text = cluster(["http://127.0.0.1:9"], gateway="watch: false")
    file.write_text(text)
    command = [sys.executable, "-m", "kilocard", "gateway", str(file)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            for line in process.stderr:
                if "/readyz" in line:
                    break
            file.write_text(text.replace("drain: 2s", "drain: 1s"))
            process.send_signal(signal.SIGHUP)
            for line in process.stderr:
                if "taken over" in line:
                    break
            else:
                pytest.fail("it ended instead")
            process.terminate()
            assert "drain" in "".join(process.stderr) + line and process.wait(60) == 0
        finally:
            process.kill()
