"""The decision log of a real gateway, under load and faults, played again."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import random
import stat
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from stub_engine import Asked, Setup, Wire, answer, die, error500, gateway_over, run, within
from typer.testing import CliRunner

from kilocard.cli.main import app
from kilocard.core.errors import BackendError
from kilocard.core.replica import Endpoint, Found, Leaving, Lost
from kilocard.dispatch import events as ev
from kilocard.dispatch.config import PoolFacts
from kilocard.dispatch.replay import Parity, check
from kilocard.dispatch.replay import Setup as Dispatch
from kilocard.gateway.decision_log import DecisionLog
from kilocard.gateway.server import Gateway
from kilocard.metrics.render import Registry
from kilocard.spec.model import EjectSpec, GatewaySpec, HoldSpec, ModelSpec, TenantSpec
from kilocard.spec.services import RecordSpec

MODEL = ModelSpec("m", {"p": 1}, eject=EjectSpec(consecutive=2, backoff=0.2), hold=HoldSpec(40, 1.0))


def lines(path: Path) -> Iterator[Any]:
    for line in path.read_text().splitlines():
        yield json.loads(line)


def kinds(path: Path) -> set[str]:
    found = set()
    for line in lines(path):
        if isinstance(line, list):
            found.add(line[0][0])
            found.update(instruction[0] for instruction in line[1:])
    return found


def recorded(path: Path, size: int = 1 << 28) -> GatewaySpec:
    return GatewaySpec(record=RecordSpec(str(path), size), scrape_interval=0.2)


def flaky(seed: int) -> Any:
    """An engine with bad days."""
    rng = random.Random(seed)

    async def script(asked: Asked, wire: Wire) -> None:
        if asked.json.get("leaves"):
            await asked.gone.wait()
        await asyncio.sleep(rng.random() * 0.02)
        await rng.choice([answer, answer, answer, answer, die, error500])(asked, wire)

    return script


async def trouble(setup: Setup) -> None:
    """Load, clients that leave, replicas that fail, drain, vanish and come back."""
    setup.engines[0].metrics = b"vllm:num_requests_running 2\nvllm:num_requests_waiting 1\n"

    async def client(number: int) -> None:
        try:
            async with asyncio.timeout(0.01 if number % 7 == 0 else 60):
                await setup.chat(stream=number % 2 == 0)
        except TimeoutError:
            pass

    async def leaves() -> None:
        """Whatever the speed of the machine, this one is heard before it goes."""
        _, writer = await setup.raw()
        body = b'{"model":"m","leaves":true}'
        writer.write(b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body))
        async with within(20.0):
            while not any(asked.json.get("leaves") for engine in setup.engines for asked in engine.asked):
                await asyncio.sleep(0.005)
        writer.transport.abort()

    await leaves()

    for wave in range(4):
        load = [asyncio.ensure_future(client(wave * 40 + number)) for number in range(40)]
        await asyncio.sleep(0.1)
        if wave == 1:
            setup.gateway.apply(Leaving("p/1", "it goes"))
        if wave == 2:
            setup.gateway.apply(Lost("p/1", "gone"))
            setup.gateway.apply(Found(Endpoint("p/1", "p", setup.engines[1].url)))
        await asyncio.gather(*load)
    await asyncio.sleep(0.5)


def parity(path: Path) -> Parity:
    found = check(lines(path))
    assert found.differing == 0, found.shown
    return found


def test_the_log_of_a_gateway_in_trouble_replays_exactly(tmp_path: Path) -> None:
    path = tmp_path / "decisions.jsonl"

    async def story() -> None:
        scripts = [flaky(seed) for seed in range(3)]
        async with gateway_over(*scripts, model=MODEL, gateway=recorded(path), max_in_flight=4) as setup:
            await trouble(setup)

    run(story())
    found = parity(path)
    assert 100 < found.requests <= 161 and found.gaps == 0, "some clients leave before they were heard"
    seen = kinds(path)
    assert seen >= {
        "arrived", "failed", "abandoned", "finished", "first_content", "replica_up", "replica_draining",
        "replica_gone", "scraped", "tick", "send", "hold", "probe", "probed",
    }  # fmt: skip
    result = CliRunner().invoke(app, ["replay", str(path), "--policy", "round_robin", "--json"])
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    assert document["differing"] == 0 and document["what_if"]["elsewhere"] > 0


def test_each_file_of_a_rotated_log_replays_alone(tmp_path: Path) -> None:
    path = tmp_path / "decisions.jsonl"

    async def story() -> None:
        gateway = recorded(path, 40_000)
        async with gateway_over(flaky(1), flaky(2), model=MODEL, gateway=gateway, max_in_flight=4) as setup:
            await trouble(setup)
            await trouble(setup)

    run(story())
    old = tmp_path / "decisions.jsonl.1"
    assert parity(old).events > 50
    assert parity(path).gaps == 0
    first, second, *_ = lines(path)
    assert first["kilocard"] and "checkpoint" in second
    assert sorted(file.name for file in tmp_path.iterdir()) == ["decisions.jsonl", "decisions.jsonl.1"]


def test_changes_of_the_cluster_file_are_in_the_log(tmp_path: Path) -> None:
    path = tmp_path / "decisions.jsonl"

    async def story() -> None:
        async with gateway_over(flaky(1), flaky(2), model=MODEL, gateway=recorded(path), max_in_flight=3) as setup:
            await asyncio.gather(*(setup.chat() for _ in range(20)))
            spec = setup.gateway.spec
            for change in ({"policy": "round_robin"}, {"hold": HoldSpec(3, 0.2)}, {"policy": "adaptive"}):
                load = [asyncio.ensure_future(setup.chat()) for _ in range(20)]
                await asyncio.sleep(0.01)
                spec = replace(spec, models={"m": replace(spec.models["m"], **change)})
                assert setup.gateway.reload(spec).changed
                await asyncio.gather(*load)

    run(story())
    assert parity(path).requests == 80
    assert sum(line[0][0] == "reconfigured" for line in lines(path) if isinstance(line, list)) == 3


def test_no_prompt_and_no_key_is_in_the_log_and_only_its_owner_reads_it(tmp_path: Path) -> None:
    path = tmp_path / "decisions.jsonl"
    digest = "sha256:" + "0" * 64

    async def story() -> None:
        tenants = {"team-a": TenantSpec("team-a", (digest,))}
        async with gateway_over(answer, gateway=recorded(path), tenants=tenants) as setup:
            await setup.chat(messages=[{"role": "user", "content": "SECRET"}])

    run(story())
    text = path.read_text()
    assert "SECRET" not in text and "0" * 64 not in text
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_log_that_can_not_be_begun_is_an_error_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(BackendError, match=r"gateway\.record: can't write"):
        Driver(tmp_path / "no" / "such" / "folder")


def test_a_log_of_an_earlier_run_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "decisions.jsonl"
    path.write_text("yesterday\n")

    async def story() -> None:
        async with gateway_over(answer, gateway=recorded(path)) as setup:
            await setup.chat()

    run(story())
    assert (tmp_path / "decisions.jsonl.1").read_text() == "yesterday\n"
    assert parity(path).requests == 1


class Driver:
    """A log without a gateway: events go in, the file comes out."""

    def __init__(self, path: Path) -> None:
        setup = Dispatch({"m": ModelSpec("m", {"p": 1})}, {"p": PoolFacts()}, 3, 1.0)
        self.registry = Registry()
        self.log = DecisionLog(RecordSpec(str(path)), setup.dispatcher(), setup, self.registry)
        self.handle = self.log.recording()
        self.number = 0

    def request(self, count: int = 1) -> None:
        for _ in range(count):
            self.number += 1
            self.handle(ev.Arrived(1.0, self.number, "m", 10, 10, 100.0))

    def counted(self, result: str) -> int:
        page = self.registry.render().decode()
        return int(page.split(f'kilocard_recorded_events_total{{result="{result}"}} ')[1].split()[0])


class FullDisk:
    """A file on a disk that has room for `room` bytes more."""

    def __init__(self, file: Any, room: int) -> None:
        self.file = file
        self.room = room

    def write(self, data: bytes) -> int:
        if not self.room:
            raise OSError(errno.ENOSPC, "No space left on device")
        part = data[: self.room]
        self.room -= len(part)
        return int(self.file.write(part))

    def truncate(self, size: int) -> None:
        self.file.truncate(size)

    def close(self) -> None:
        self.file.close()


def test_a_full_disk_loses_events_says_how_many_and_goes_on_from_a_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "decisions.jsonl"
    monkeypatch.setattr("kilocard.gateway.decision_log.AGAIN", 0.0)
    driver = Driver(path)
    driver.log._stopping.set()  # from here on the writer's steps are ours
    driver.log._thread.join()
    driver.handle(ev.ReplicaUp(0.0, "a", "p"))
    driver.request(3)
    driver.log._drain()
    driver.log._file = FullDisk(driver.log._file, 100)  # type: ignore[assignment]  # as much of a file as is used
    driver.request(5)
    driver.log._drain()
    assert driver.counted("written") == 4 and driver.counted("lost") == 5
    driver.request(2)
    driver.log._drain()  # there is room again: a checkpoint is asked for
    assert driver.counted("lost") == 7
    driver.request(4)
    driver.log._drain()
    driver.log.close()
    assert driver.counted("written") == 8
    assert parity(path).gaps == 1 and parity(path).events == 8


def test_a_writer_that_does_not_keep_up_costs_events_not_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kilocard.gateway.decision_log.QUEUE", 10)
    path = tmp_path / "decisions.jsonl"
    driver = Driver(path)
    driver.log._stopping.set()
    driver.log._thread.join()
    driver.handle(ev.ReplicaUp(0.0, "a", "p"))
    driver.request(30)
    assert len(driver.log._queue) == 10
    driver.log._drain()
    driver.request(2)
    driver.log._drain()
    driver.log.close()
    assert driver.counted("written") == 12 and driver.counted("lost") == 21
    assert parity(path).gaps == 1 and parity(path).events == 12


def test_a_file_that_was_cut_behind_our_back_is_begun_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kilocard.gateway.decision_log.AGAIN", 0.0)
    path = tmp_path / "decisions.jsonl"
    driver = Driver(path)
    driver.log._stopping.set()
    driver.log._thread.join()
    driver.log._give_up(OSError(errno.EIO, "Input/output error"))
    path.unlink()
    driver.log._drain()
    driver.request(2)
    driver.log._drain()
    driver.log.close()
    assert parity(path).events == 2


@pytest.mark.parametrize("how", ["moved", "removed", "moved and made", "cut"])
def test_a_file_that_others_rotate_is_begun_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    """As logrotate does it. What was moved away stays whole, and no event between the two is lost."""
    monkeypatch.setattr("kilocard.gateway.decision_log.LOOK", 0.0)
    path, old = tmp_path / "decisions.jsonl", tmp_path / "old"
    driver = Driver(path)
    driver.log._stopping.set()
    driver.log._thread.join()
    driver.handle(ev.ReplicaUp(0.0, "a", "p"))
    driver.request(3)
    driver.log._drain()
    if how == "cut":
        old.write_bytes(path.read_bytes())
        os.truncate(path, 0)
    elif how == "removed":
        path.unlink()
    else:
        path.rename(old)
        if how == "moved and made":
            path.touch()
    driver.request(2)
    driver.log._drain()
    driver.request(4)
    driver.log._drain()
    driver.log.close()
    lost = driver.counted("lost")
    assert lost == (2 if how == "cut" else 0) and driver.counted("written") == 10 - lost
    assert parity(path).events == 4 and parity(path).gaps == bool(lost)
    if how != "removed":
        assert parity(old).events == 10 - 4 - lost
    assert not (tmp_path / "decisions.jsonl.1").exists(), "nothing of an earlier file is lost either"


def test_replay_says_what_is_wrong_with_a_file(tmp_path: Path) -> None:
    path = tmp_path / "log"
    for text in ("", "hello\n", "{}\n"):
        path.write_text(text)
        result = CliRunner().invoke(app, ["replay", str(path)])
        assert result.exit_code != 0
        assert "log" in str(result.exception)


def test_replay_names_the_line_that_is_no_whole_event(tmp_path: Path) -> None:
    path = tmp_path / "decisions.jsonl"
    driver = Driver(path)
    driver.request(3)
    driver.log.close()
    whole = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*whole[:2], b'[["arrived",1]]\n', *whole[2:]]))
    for more in ([], ["--policy", "round_robin"]):
        result = CliRunner().invoke(app, ["replay", str(path), *more])
        assert result.exit_code != 0 and "line 3: " in str(result.exception)


def test_replay_leaves_out_a_line_that_a_kill_has_cut(tmp_path: Path) -> None:
    path = tmp_path / "decisions.jsonl"
    driver = Driver(path)
    driver.request(3)
    driver.log.close()
    path.write_bytes(path.read_bytes()[:-5])
    result = CliRunner().invoke(app, ["replay", str(path)])
    assert result.exit_code == 0, result.output
    assert "2 events of 2 requests" in result.stdout and "all the same" in result.stdout


@pytest.mark.parametrize("same", ["listen", "admin"])
def test_a_gateway_that_is_started_twice_leaves_the_log_to_the_one_that_runs(tmp_path: Path, same: str) -> None:
    path = tmp_path / "decisions.jsonl"

    async def story() -> None:
        async with gateway_over(answer, gateway=recorded(path)) as setup:
            one = setup.gateway
            taken = f"127.0.0.1:{one.port if same == 'listen' else one.admin_port}"
            other = replace(one.spec.gateway, **{same: taken})
            for _ in range(2):  # the second would push the first one's records out of PATH.1
                with pytest.raises(BackendError, match=f"can't listen on {taken}.*Is another gateway running"):
                    await Gateway(replace(one.spec, gateway=other)).start()
            await setup.chat()

    run(story())
    assert [each.name for each in tmp_path.iterdir()] == ["decisions.jsonl"]
    assert "arrived" in kinds(path)
