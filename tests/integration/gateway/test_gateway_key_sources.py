"""Keys that come, go and break while the gateway serves: file, store, and the commands that write it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from stub_engine import Setup, StubEngine, answer, gateway_over, run, until, within

from kilocard.cli.wiring import key_ring
from kilocard.net.client import fetch
from kilocard.spec.model import GatewaySpec, TenantSpec
from kilocard.stores.embedded import connect
from kilocard.stores.key_table import hash_of
from kilocard.stores.keyring import wall_clock

TENANTS = {"team-a": TenantSpec("team-a", keys=(hash_of("in-the-cluster-file"),)), "team-b": TenantSpec("team-b")}


@contextlib.asynccontextmanager
async def following(tmp_path: Path, tenants: dict[str, TenantSpec] = TENANTS) -> AsyncIterator[Setup]:
    """A gateway that follows tmp_path's keys.yaml and kilocard.db."""
    async with gateway_over(answer, tenants=tenants) as setup:
        gateway = replace(GatewaySpec(), store=str(tmp_path / "kilocard.db"), keys_file=str(tmp_path / "keys.yaml"))
        ring = key_ring(replace(setup.gateway.spec, gateway=gateway), setup.gateway)
        await ring.start()
        try:
            yield setup
        finally:
            await ring.close()


async def status_of(setup: Setup, key: str) -> int:
    return (await setup.post({"model": "m"}, headers=[("authorization", f"Bearer {key}")])).status


async def becomes(setup: Setup, key: str, status: int) -> None:
    """The key's status within two seconds: what users are promised."""
    async with within(2.0):
        while await status_of(setup, key) != status:
            await asyncio.sleep(0.02)


def gauges(setup: Setup, name: str) -> dict[str, float]:
    page = setup.gateway.plane.telemetry.registry.render().decode()
    lines = [line for line in page.splitlines() if line.startswith(name + "{")]
    return {line.split('"')[1]: float(line.rpartition(" ")[2]) for line in lines}


def swap(path: Path, text: str) -> None:
    new = path.with_name("new")
    new.write_text(text)
    os.replace(new, path)


def kilocard(*arguments: str, stdin: str | None = None, home: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "kilocard", *arguments],
        input=stdin, capture_output=True, text=True, timeout=90,
        env=os.environ | ({} if home is None else {"KILOCARD_HOME": str(home)}),
    )  # fmt: skip


def create(store: Path, tenant: str, *more: str) -> dict[str, Any]:
    done = kilocard("keys", "create", tenant, "--store", str(store), "--json", *more)
    assert done.returncode == 0, done.stderr
    made: dict[str, Any] = json.loads(done.stdout)
    return made


def test_create_use_revoke_with_the_real_programs(tmp_path: Path) -> None:
    async def story() -> None:
        engine = StubEngine()
        await engine.start()
        cluster = tmp_path / "cluster.yaml"
        cluster.write_text(
            "gateway: {listen: '127.0.0.1:0', admin: '127.0.0.1:0', drain: 1s}\n"
            f"pools: {{m: {{engine: vllm, endpoints: ['{engine.url}']}}}}\n"
            "tenants: {team-a: {}}\n"
        )
        gateway = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "kilocard", "gateway", str(cluster),
            stderr=asyncio.subprocess.PIPE, env=os.environ | {"KILOCARD_HOME": str(tmp_path), "COLUMNS": "200"},
        )  # fmt: skip
        assert gateway.stderr is not None
        said = ""
        try:
            while "gateway http://" not in said.splitlines()[-1:][0] if said else True:
                said += (await gateway.stderr.readline()).decode()
            url = said.rpartition("gateway ")[2].strip() + "/chat/completions"

            async def asked(key: str) -> int:
                head = [("authorization", f"Bearer {key}"), ("content-type", "application/json")]
                return (await fetch(url, method="POST", body=b'{"model":"m"}', headers=head, timeout=60)).status

            async def soon(key: str, status: int) -> None:
                """Within two seconds, where nobody keeps the other process from running."""
                async with within(20.0):
                    while await asked(key) != status:
                        await asyncio.sleep(0.05)

            assert "no key of any of them" in said
            assert await asked("kc-x") == 401

            def command(*arguments: str, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
                return kilocard("keys", *arguments, "--cluster", str(cluster), stdin=stdin, home=tmp_path)

            made = await asyncio.to_thread(command, "create", "team-a", "--name", "laptop")
            key = made.stdout.strip()
            assert made.returncode == 0 and key.startswith("kc-") and "\n" not in key
            assert key not in made.stderr and hash_of(key) in made.stderr
            await soon(key, 200)

            listed = json.loads((await asyncio.to_thread(command, "list", "--json")).stdout)["keys"]
            assert [(one["tenant"], one["name"], one["source"], one["revoked"]) for one in listed] == [
                ("team-a", "laptop", "store", None)
            ]
            assert key.startswith(f"kc-{listed[0]['id']}-") and key not in json.dumps(listed)

            gone = await asyncio.to_thread(command, "revoke", "-", stdin=key + "\n")
            assert gone.returncode == 0 and key not in gone.stdout + gone.stderr
            await soon(key, 401)

            stranger = await asyncio.to_thread(command, "create", "team-x")
            assert stranger.returncode == 2 and not stranger.stdout and "team-a" in stranger.stderr
        finally:
            gateway.terminate()
            rest = (await gateway.stderr.read()).decode()
            await gateway.wait()
            await engine.stop()
        assert gateway.returncode == 0
        assert key not in said + rest  # no log has it
        assert key.encode() not in (tmp_path / "kilocard.db").read_bytes()

    run(story())


def test_keys_of_all_sources_work_and_strangers_are_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "keys.yaml").write_text(f"team-b: ['{hash_of('in-the-keys-file')}']\nnobody: ['{hash_of('x')}']\n")
    made = create(tmp_path / "kilocard.db", "team-a")
    create(tmp_path / "kilocard.db", "stranger")

    async def story() -> None:
        async with following(tmp_path) as setup:
            for key in ("in-the-cluster-file", "in-the-keys-file", made["key"]):
                assert await status_of(setup, key) == 200
            assert await status_of(setup, "x") == 401
            assert gauges(setup, "kilocard_keys") == {"cluster": 1, "keys_file": 1, "store": 1}
            assert set(gauges(setup, "kilocard_key_source_up").values()) == {1}

    run(story())
    (told,) = [record.getMessage() for record in caplog.records if "does not declare" in record.getMessage()]
    assert told.endswith(": nobody, stranger")


def test_the_keys_file_is_swapped_under_load_without_a_failed_request(tmp_path: Path) -> None:
    path = tmp_path / "keys.yaml"
    both = f"team-b: ['{hash_of('stays')}', '{hash_of('goes')}']\n"
    path.write_text(both)

    async def story() -> None:
        async with following(tmp_path) as setup:
            statuses: Counter[int] = Counter()
            stop = asyncio.Event()

            async def load() -> None:
                while not stop.is_set():
                    statuses[await status_of(setup, "stays")] += 1

            clients = [asyncio.ensure_future(load()) for _ in range(8)]
            await becomes(setup, "goes", 200)
            for text, status in ((f"team-b: ['{hash_of('stays')}']\n", 401), (both, 200)):
                swap(path, text)
                await becomes(setup, "goes", status)
            swap(path, "team-b: [half a fi")
            await until(lambda: gauges(setup, "kilocard_key_source_up")["keys_file"] == 0, 2.0)
            path.unlink()
            await asyncio.sleep(1.5)
            assert gauges(setup, "kilocard_key_source_up")["keys_file"] == 0
            await until(lambda: statuses[200] > 200, 60.0)
            stop.set()
            await asyncio.gather(*clients)
            assert set(statuses) == {200}
            assert await status_of(setup, "goes") == 200  # the last good word

    run(story())


def test_a_bad_keys_file_is_reported_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "keys.yaml"
    path.write_text("team-b: [kc-a-key-in-plain-text]\n")
    caplog.set_level(logging.INFO, "kilocard")

    async def story() -> None:
        async with following(tmp_path) as setup:
            assert await status_of(setup, "in-the-cluster-file") == 200
            await asyncio.sleep(2.2)
            swap(path, f"team-b: ['{hash_of('good')}']\n")
            await becomes(setup, "good", 200)

    run(story())
    told = [record.getMessage() for record in caplog.records]
    assert len([line for line in told if "is no hash" in line]) == 1
    assert len([line for line in told if "works again" in line]) == 1
    assert "kc-a-key-in-plain-text" not in caplog.text


def test_42_keys_go_on_working_when_their_store_is_gone_or_broken(tmp_path: Path) -> None:
    """litellm#38121, #34929: the database goes away, and every key is a 401 or hangs."""
    store = tmp_path / "kilocard.db"
    made = create(store, "team-b")

    async def story() -> None:
        async with following(tmp_path) as setup:
            assert await status_of(setup, made["key"]) == 200
            away = tmp_path / "away"
            os.replace(store, away)
            for wreck in (None, b"garbage" * 1000, b""):
                if wreck is not None:
                    (tmp_path / "wreck").write_bytes(wreck)
                    os.replace(tmp_path / "wreck", store)
                await asyncio.sleep(1.3)
                await until(lambda: gauges(setup, "kilocard_key_source_up")["store"] == 0, 2.0)
                await until(lambda: gauges(setup, "kilocard_key_source_age_seconds")["store"] > 0.2, 2.0)
                assert await status_of(setup, made["key"]) == 200
                assert await status_of(setup, "unknown") == 401
            # another source that changes meanwhile does not make the broken one forgotten
            swap(tmp_path / "keys.yaml", f"team-b: ['{hash_of('new')}']\n")
            await becomes(setup, "new", 200)
            assert await status_of(setup, made["key"]) == 200
            for left in list(tmp_path.glob("kilocard.db-*")):  # noqa: ASYNC240  # a folder of a test
                left.unlink()
            os.replace(away, store)
            revoked = await asyncio.to_thread(kilocard, "keys", "revoke", made["id"], "--store", str(store))
            assert revoked.returncode == 0
            await becomes(setup, made["key"], 401)
            assert gauges(setup, "kilocard_key_source_up")["store"] == 1

    run(story())


def test_42_a_start_with_a_broken_store_serves_the_files_keys(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "kilocard.db").write_bytes(b"garbage" * 1000)

    async def story() -> None:
        async with following(tmp_path) as setup:
            assert await status_of(setup, "in-the-cluster-file") == 200
            assert await status_of(setup, "unknown") == 401
            assert gauges(setup, "kilocard_key_source_up")["store"] == 0
            assert "store" not in gauges(setup, "kilocard_key_source_age_seconds")

    run(story())
    assert "embedded store" in caplog.text and "kilocard.db" in caplog.text


def test_a_key_expires_to_the_second_and_one_in_a_file_too_is_revoked(tmp_path: Path) -> None:
    store = tmp_path / "kilocard.db"
    (tmp_path / "keys.yaml").write_text(f"team-b: ['{hash_of('pasted')}']\n")

    async def story() -> None:
        async with following(tmp_path) as setup:
            made = await asyncio.to_thread(create, store, "team-a", "--expires", "1h")
            await becomes(setup, made["key"], 200)
            expires = wall_clock() + 4.0  # the gateway looks at the store once a second
            with closing(connect(store)) as table:
                asked = table.execute("SELECT expires - created FROM api_keys").fetchone()[0]
                table.execute("UPDATE api_keys SET expires = ?", (expires,))
            assert asked == pytest.approx(3600, abs=0.01)
            served = refused = 0.0  # when the last request was sent that passed, when the first refusal came
            async with within(20.0):
                while not refused:
                    sent = wall_clock()
                    if await status_of(setup, made["key"]) == 200:
                        served = sent
                    else:
                        refused = wall_clock()
                    await asyncio.sleep(0.01)
            # the gateway looks at the clock ten times a second
            assert served < expires + 0.3 and refused >= expires
            cluster = tmp_path / "cluster.yaml"
            cluster.write_text(
                f"gateway: {{keys_file: {tmp_path}/keys.yaml, store: {store}}}\n"
                "pools: {m: {engine: external, endpoints: ['http://127.0.0.1:9']}}\ntenants: {team-b: {}}\n"
            )
            arguments = ("keys", "revoke", hash_of("pasted"), "--cluster", str(cluster))
            assert (await asyncio.to_thread(kilocard, *arguments)).returncode == 0
            await becomes(setup, "pasted", 401)

    run(story())


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["create", "t", "--expires", "soon"], 2),
        (["create", "t", "--expires", "0"], 2),
        (["create", "t", "--no-store", "--expires", "1d"], 2),
        (["revoke", "no-such-id"], 1),
        (["revoke", "kc-12345678-not-a-key"], 1),
        (["revoke", "-"], 2),
        (["list"], 0),
        (["fly"], 2),
    ],
)
def test_exit_codes(arguments: list[str], code: int, tmp_path: Path) -> None:
    done = kilocard("keys", *arguments, home=tmp_path, stdin="")
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr and "not-a-key" not in done.stderr
    assert not done.stdout
    assert not list(tmp_path.iterdir())  # a look makes no store


def test_no_store_only_prints(tmp_path: Path) -> None:
    done = kilocard("keys", "create", "t", "--no-store", "--json", home=tmp_path)
    made = json.loads(done.stdout)
    assert (
        hash_of(made["key"]) == made["hash"] and made["tenant"] == "t" and made["key"].startswith(f"kc-{made['id']}-")
    )
    assert not list(tmp_path.iterdir())
