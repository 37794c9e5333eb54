"""Limits shared through a real Redis: exact while it lives, never passed while it dies, hangs, forgets, comes back."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import trustme
from shared_limits import Fleet, fleet, scope

from kilocard.stores import redis_keeper
from kilocard.stores.keyring import wall_clock
from kilocard.stores.redis_limits import RedisLimits
from kilocard.stores.redis_link import RedisLink, connect
from kilocard.stores.redis_url import RedisUrl
from kilocard.tenancy.limits import Denied
from redis_server import Caller, RedisServer


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    server = RedisServer(tmp_path)
    server.start()
    yield server
    server.crash()


# -- while it lives


async def simultaneous(server: RedisServer) -> None:
    async with fleet(server) as three:
        assert await three.burst(scope("a", requests_per_minute=100), 600) == 100
        assert {denied.code for denied in three.denials} == {"requests_per_minute"}
        assert await three.burst(scope("b", tokens_per_minute=1000), 600, prompt=7) == 142
        assert await three.burst(scope("c", concurrency=25), 600) == 25
        assert await three.burst(scope("d", tokens_per_month=1000), 600) == 100
        assert all(gateway.status().decided_alone == 0 for gateway in three.all)
        three.settle()
        await three.until(lambda: three.kept(scope("c")) == {"R": 25, "T": 250, "c": 0})
        assert await three.burst(scope("c", concurrency=25), 600) == 25


def test_19_of_simultaneous_requests_to_three_gateways_exactly_the_limit_passes(server: RedisServer) -> None:
    asyncio.run(simultaneous(server))


def test_all_of_the_limit_is_there_for_requests_that_come_to_one_gateway(server: RedisServer) -> None:
    async def main() -> None:
        async with fleet(server) as three:
            for _ in range(600):
                three.ask(three.all[1], scope(requests_per_minute=100))
            await three.answered(600)
            assert len(three.grants) == 100

    asyncio.run(main())


def test_what_was_not_used_comes_back_for_all(server: RedisServer) -> None:
    async def main() -> None:
        limited = scope(tokens_per_minute=1000, tokens_per_day=1500)
        async with fleet(server) as three:
            assert await three.burst(limited, 30, prompt=100) == 10
            three.settle(None)
            await three.until(lambda: three.kept(limited) == {"R": 0, "T": 0, "c": 0})
            assert await three.burst(limited, 30, prompt=100) == 10
            three.settle(100)
            await three.until(lambda: three.kept(limited)["c"] == 0)
            assert await three.burst(scope(tokens_per_day=1500), 30, prompt=100) == 5

    asyncio.run(main())


def test_a_fault_that_nobody_foresaw_is_said_and_another_attempt_made(
    server: RedisServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    faults = [LookupError("of no store's making")]

    async def connected(url: RedisUrl, on_lost: Callable[[str], None]) -> RedisLink:
        if faults:
            raise faults.pop()
        return await connect(url, on_lost)

    async def main() -> None:
        monkeypatch.setattr(redis_keeper, "connect", connected)
        limits = RedisLimits(server.url)
        await limits.start()
        assert "LookupError, a fault" in caplog.text and limits.status().errors == 1
        while not limits.status().up:
            await asyncio.sleep(0.01)
        await limits.close()

    asyncio.run(asyncio.wait_for(main(), 20))


def test_every_gateway_shows_what_all_use(server: RedisServer) -> None:
    async def main() -> None:
        limited = scope(concurrency=50, tokens_per_day=10_000)
        async with fleet(server) as three:
            for gateway in range(3):
                three.used(limited, gateway)
            await three.burst(limited, 30)
            for gateway in range(3):
                await three.until(lambda gateway=gateway: three.used(limited, gateway)[:4] == (30, 30, 300, 300))  # type: ignore[misc]

    asyncio.run(main())


def test_the_scripts_are_made_known_again_when_somebody_flushes_them(server: RedisServer) -> None:
    async def main() -> None:
        async with fleet(server) as three:
            assert await three.burst(scope(requests_per_minute=100), 60) == 60
            server.call("SCRIPT", "FLUSH")
            assert await three.burst(scope(requests_per_minute=100), 60) == 40
            server.call("SCRIPT", "FLUSH")
            three.settle()
            await three.until(lambda: three.kept(scope())["c"] == 0)
            assert all(gateway.status().up and not gateway.status().decided_alone for gateway in three.all)

    asyncio.run(main())


def test_22_every_key_ends_by_itself(server: RedisServer) -> None:
    async def main() -> None:
        async with fleet(server) as three:
            await three.burst(scope(requests_per_minute=9, tokens_per_day=10**6, tokens_per_month=10**6), 30)
            three.settle(50)
            await three.until(lambda: three.kept(scope())["c"] == 0)
            keys = server.call("KEYS", "*")
            assert isinstance(keys, list) and len(keys) >= 6
            ends = {key: server.call("TTL", key) for key in keys}  # type: ignore[arg-type, misc]
            assert all(isinstance(end, int) and 0 < end <= 40 * 86_400 for end in ends.values()), ends

    asyncio.run(main())


def test_18_a_gateway_that_died_holds_nothing_any_more(server: RedisServer) -> None:
    async def main() -> None:
        limited = scope(concurrency=30, tokens_per_day=1_000)
        async with fleet(server) as three:
            assert await three.burst(limited, 30) == 30
            dead = three.all.pop()
            dead.keeper._task.cancel()  # type: ignore[union-attr]
            await three.until(lambda: three.kept(limited)["c"] == 20)
            # What it had reserved counts as used: nobody knows what engines did for it.
            assert three.kept(limited)["R"] == 30
            await three.until(lambda: three.used(limited).day == 300)
            assert await three.burst(limited, 60) == 10
            dead.keeper._link.drop("")  # type: ignore[union-attr]

    asyncio.run(main())


def test_a_gateway_that_was_only_slow_gets_its_leases_back_once(server: RedisServer) -> None:
    async def main() -> None:
        limited = scope(concurrency=30, tokens_per_day=1_000)
        async with fleet(server) as three:
            assert await three.burst(limited, 30) == 30
            slow = three.all[2]
            asked = slow.keeper._asked

            seen = asyncio.Event()

            async def silence(*args: object) -> object:
                await seen.wait()
                slow.keeper._asked = asked  # type: ignore[method-assign]
                return await asked(*args)  # type: ignore[arg-type]

            slow.keeper._asked = silence  # type: ignore[method-assign, assignment]
            await three.until(lambda: three.kept(limited)["c"] == 20)
            seen.set()
            await three.until(lambda: three.kept(limited)["c"] == 30)
            await three.shared()
            three.settle(5)
            await three.until(lambda: three.kept(limited) == {"R": 30, "T": 150, "c": 0})
            await three.until(lambda: three.used(limited).day == 150)

    asyncio.run(main())


# -- while it does not


def test_killed_in_the_middle_no_limit_is_passed(server: RedisServer) -> None:
    async def main() -> None:
        limited = scope(requests_per_minute=300)
        async with fleet(server) as three:
            pouring = asyncio.ensure_future(three.pour(limited, 600, 1.5))
            await three.until(lambda: len(three.grants) > 100)
            server.crash()
            await pouring
            passed = len(three.grants)
            assert 200 < passed <= 300  # serving goes on
            assert all(gateway.status().decided_alone > 0 for gateway in three.all)
            assert await three.burst(limited, 100) == 0
            server.start()  # without its memory
            await three.shared()
            assert three.kept(limited)["R"] == len(three.grants)
            assert await three.burst(limited, 600) == 300 - passed
            assert await three.burst(limited, 600) == 0
            three.settle()
            await three.until(lambda: three.kept(limited)["c"] == 0)

    asyncio.run(main())


def test_killed_and_restarted_under_load_with_its_memory(tmp_path: Path) -> None:
    server = RedisServer(tmp_path, aof=True)
    server.start()

    async def main() -> None:
        limited = scope(requests_per_minute=600, tokens_per_month=100_000)
        async with fleet(server) as three:
            pouring = asyncio.ensure_future(three.pour(limited, 900, 2.5))
            await three.until(lambda: len(three.grants) > 150)
            server.crash()
            await asyncio.sleep(0.3)
            server.start()
            await pouring
            await three.shared()
            assert len(three.grants) <= 600
            assert three.kept(limited)["R"] == len(three.grants)
            three.settle(7)
            spent = 7 * len(three.grants)
            await three.until(lambda: three.used(limited)[0] == 0 and three.used(limited).month == spent)

    try:
        asyncio.run(main())
    finally:
        server.crash()


def test_what_ended_while_the_store_was_away_is_not_held_there(tmp_path: Path) -> None:
    server = RedisServer(tmp_path, aof=True)
    server.start()

    async def main() -> None:
        limited = scope(concurrency=30)
        async with fleet(server) as three:
            assert await three.burst(limited, 30) == 30
            server.crash()
            await three.away()
            three.settle(None)
            server.start()
            await three.shared()
            assert three.kept(limited) == {"R": 0, "T": 0, "c": 0}
            assert await three.burst(limited, 60) == 30

    try:
        asyncio.run(main())
    finally:
        server.crash()


def test_budgets_outlive_a_store_without_memory(server: RedisServer) -> None:
    async def main() -> None:
        limited = scope(tokens_per_month=10_000)
        async with fleet(server) as three:
            await three.burst(limited, 300)
            three.settle()
            for gateway in range(3):
                await three.until(lambda gateway=gateway: three.used(limited, gateway).month == 3000)  # type: ignore[misc]
            await three.all.pop().close()  # what it used, only the others know now
            await three.shared()
            server.crash()
            await three.away()
            before = len(three.grants)
            await three.burst(limited, 60)
            for gateway, grant in three.grants[before:]:
                gateway.settle(grant, 10, time.monotonic())
            server.start()
            await three.shared()
            await three.until(lambda: three.used(limited).month == 3600)

    asyncio.run(main())


def test_42_a_store_that_hangs_delays_a_request_by_its_patience_once(server: RedisServer) -> None:
    async def main() -> None:
        limited = scope(requests_per_minute=100)
        async with fleet(server, patience=0.1) as three:
            assert await three.burst(limited, 30) == 30
            server.hang()
            three.waits.clear()
            assert await three.burst(limited, 30) == 30
            assert max(three.waits) < 3  # 0.1 and what a busy machine adds
            await three.away()
            three.waits.clear()
            assert await three.burst(limited, 600) <= 40
            assert max(three.waits) < 3
            passed = len(three.grants)
            server.go_on()
            await three.shared()
            # What lay in its buffers was carried out for nobody, and is undone.
            await three.until(lambda: three.kept(limited)["R"] == passed)
            assert three.kept(limited)["c"] == passed
            assert passed + await three.burst(limited, 600) == 100

    asyncio.run(main())


def test_a_store_that_sleeps_a_moment(server: RedisServer) -> None:
    async def main() -> None:
        limited = scope(requests_per_minute=100, concurrency=100)
        async with fleet(server, patience=0.1) as three:
            caller = Caller(server.port)
            caller.send(b"*3\r\n$5\r\nDEBUG\r\n$5\r\nSLEEP\r\n$3\r\n0.6\r\n")
            await three.pour(limited, 200, 1.5)
            await three.shared()
            caller.close()
            assert len(three.grants) <= 100
            await three.until(lambda: three.kept(limited)["R"] == three.kept(limited)["c"] == len(three.grants))

    asyncio.run(main())


def test_flushed_in_mid_traffic_gateways_say_again_what_they_did(server: RedisServer) -> None:
    async def main() -> None:
        limited = scope(requests_per_minute=300)
        async with fleet(server) as three:
            pouring = asyncio.ensure_future(three.pour(limited, 600, 1.5))
            await three.until(lambda: len(three.grants) > 100)
            server.call("FLUSHALL")
            await pouring
            await three.shared()
            assert len(three.grants) <= 300
            assert len(three.grants) + await three.burst(limited, 300) == 300
            assert three.kept(limited)["R"] == 300

    asyncio.run(main())


def test_who_is_back_first_waits_for_the_others(server: RedisServer) -> None:
    """Else it would give them what they have given already."""

    async def main() -> None:
        limited = scope(requests_per_minute=300)
        async with fleet(server, silent=5.0) as three:
            first, *others = three.all
            assert await three.burst(limited, 180) == 180
            server.crash()
            await three.away()
            for slow in others:
                slow.keeper._task.cancel()  # type: ignore[union-attr]
            server.start()
            await three.until(lambda: first.status().state == "settling")
            for _ in range(300):
                three.ask(first, limited)
            assert len(three.grants) == 180 + 40
            for slow in others:
                await slow.keeper.start()
            await three.shared()
            assert three.kept(limited)["R"] == 220
            assert await three.burst(limited, 300) == 80

    asyncio.run(main())


def test_a_full_store_is_a_lost_one_until_it_has_room(tmp_path: Path) -> None:
    server = RedisServer(tmp_path, "--maxmemory-policy", "noeviction")
    server.start()

    async def main() -> None:
        limited = scope(requests_per_minute=90)
        async with fleet(server) as three:
            assert await three.burst(limited, 30) == 30
            server.call("CONFIG", "SET", "maxmemory", "1")
            assert await three.burst(limited, 30) == 30
            await three.away()
            assert any("OOM" in gateway.status().problem for gateway in three.all)
            server.call("CONFIG", "SET", "maxmemory", "0")
            await three.shared()
            assert await three.burst(limited, 90) == 30

    try:
        asyncio.run(main())
    finally:
        server.crash()


def test_a_gateway_starts_without_the_store_and_says_so_once(
    server: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "kilocard.limits")
    server.crash()

    async def main() -> None:
        # By its own clock until it has heard the store's, which is this machine's.
        one = Fleet(server, 1, 1.0, 1.0, wall_clock)
        await one.all[0].start()
        assert await one.burst(scope(requests_per_minute=10), 6) == 6
        await one.until(lambda: one.all[0].status().errors > 1)
        server.start()
        await one.shared()
        assert await one.burst(scope(requests_per_minute=10), 6) == 4
        await one.all[0].close()

    asyncio.run(main())
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == 2
    assert "can't be used: no connection" in said[0] and "6 requests were decided without them" in said[1]


async def comes(gateway: RedisLimits, up: bool, problem: str) -> None:
    """On a busy machine `start` may not have waited for it."""
    async with asyncio.timeout(40):
        while not gateway.status().up and problem not in gateway.status().problem:
            await asyncio.sleep(0.01)
    assert gateway.status().up is up, gateway.status()


@pytest.mark.parametrize(("password", "works"), [("right", True), ("wrong", False)])
def test_passwords_users_databases(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, password: str, works: bool
) -> None:
    server = RedisServer(tmp_path, "--requirepass", "right")
    server.start()
    server.url = f"redis://default:{password}@127.0.0.1:{server.port}/3"

    async def main() -> None:
        gateway = RedisLimits(server.url)
        await gateway.start()
        await comes(gateway, works, "WRONGPASS")
        await gateway.close()

    try:
        asyncio.run(main())
    finally:
        server.crash()
    assert password not in caplog.text.replace("WRONGPASS", "")


def test_tls_with_an_authority_of_ones_own(tmp_path: Path) -> None:
    authority = trustme.CA()
    certificate = authority.issue_cert("localhost")
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    certificate.private_key_and_cert_chain_pem.write_to_path(tmp_path / "server.pem")
    server = RedisServer(tmp_path)
    files = ("--tls-cert-file", "server.pem", "--tls-key-file", "server.pem", "--tls-ca-cert-file", "ca.pem")
    server = RedisServer(tmp_path, "--port", "0", "--tls-port", str(server.port), "--tls-auth-clients", "no", *files,
                         port=server.port)  # fmt: skip
    server.start()

    async def main() -> None:
        for options, works in (
            (f"?ssl_ca_certs={tmp_path / 'ca.pem'}", True),
            ("?ssl_cert_reqs=none", True),
            ("", False),
        ):
            gateway = RedisLimits(f"rediss://localhost:{server.port}/0{options}")
            await gateway.start()
            await comes(gateway, works, "certificate")
            await gateway.close()

    try:
        asyncio.run(main())
    finally:
        server.crash()


def test_denials_say_that_the_store_is_away(server: RedisServer) -> None:
    async def main() -> Denied:
        async with fleet(server) as three:
            server.crash()
            await three.away()
            assert await three.burst(scope(tokens_per_minute=90), 3, prompt=40) == 0
            return three.denials[0]

    denied = asyncio.run(main())
    assert denied.code == "tokens_per_minute"
    assert denied.retry_after is not None and denied.retry_after <= 5
    assert "can't reach the store" in denied.message
