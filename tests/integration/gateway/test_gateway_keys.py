"""Keys through the real gateway: what a refusal says, what engines never see, who may change things."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from stub_engine import answer, gateway_over, run, until

from kilocard.cli.wiring import key_ring
from kilocard.core.errors import UsageError
from kilocard.core.replica import Change, Endpoint, Found
from kilocard.gateway.admission import Admission
from kilocard.gateway.server import Gateway
from kilocard.net.client import fetch
from kilocard.net.server import Answer, Reply, Request, Server
from kilocard.spec.model import ClusterSpec, GatewaySpec, ModelSpec, PoolSpec, TenantSpec
from kilocard.stores import key_table
from kilocard.stores.embedded import connect

KEY = "kc-secret-of-team-a"
TENANTS = {"team-a": TenantSpec("team-a", keys=("sha256:" + hashlib.sha256(KEY.encode()).hexdigest(),))}


def test_a_401_says_how_to_get_in() -> None:
    async def story() -> None:
        async with gateway_over(answer, tenants=TENANTS) as setup:
            for headers, challenge in (
                ([], 'Bearer realm="kilocard"'),
                ([("authorization", "Bearer wrong")], 'Bearer realm="kilocard", error="invalid_token"'),
                ([("x-api-key", "wrong")], 'Bearer realm="kilocard", error="invalid_token"'),
            ):
                for path in ("/v1/chat/completions", "/v1/messages"):
                    response = await setup.post({"model": "m"}, path, headers=headers)
                    assert (response.status, response.headers["www-authenticate"]) == (401, challenge)
                response = await fetch(setup.url + "/v1/models", headers=headers, timeout=20)
                assert (response.status, response.headers["www-authenticate"]) == (401, challenge)
            response = await setup.post({"model": "m"}, headers=[("authorization", f"Bearer {KEY}")])
            assert response.status == 200 and "www-authenticate" not in response.headers

    run(story())


@pytest.mark.parametrize(("tenants", "warned"), [(TENANTS, True), ({}, False)], ids=["closed", "open"])
def test_an_engine_with_a_key_of_its_own_is_told_of_where_the_gateway_passes_none_on(
    tenants: dict[str, TenantSpec], warned: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """vLLM with --api-key: every client would get its 401 and look for the fault in its own key."""

    async def engine(request: Request, reply: Reply) -> Answer:
        return Answer(200 if request.path == "/health" else 401, "application/json", '{"error":"Unauthorized"}')

    async def story() -> None:
        let_in: list[Change] = []
        models = {"m": ModelSpec("m", {"p": 1})}
        pools = {"p": PoolSpec("p", "vllm", endpoints=("http://127.0.0.1:9",))}
        admission = Admission(ClusterSpec(models=models, tenants=tenants, pools=pools), let_in.append)
        admission.start()
        async with Server(engine) as server:
            found = Found(Endpoint("p/0", "p", f"http://127.0.0.1:{await server.start()}"))
            admission.apply(found)
            await until(lambda: let_in)
        assert let_in == [found], "a key may be wanted for some pages only"
        await admission.close()

    run(story())
    assert any("asks for a key of its own" in record.getMessage() for record in caplog.records) is warned


def test_a_refused_head_request_leaves_no_body_behind() -> None:
    async def story() -> None:
        async with gateway_over(answer, tenants=TENANTS) as setup:
            reader, writer = await setup.raw()
            ask = b" /v1/models HTTP/1.1\r\nhost: x\r\n"
            key = f"authorization: Bearer {KEY}\r\n".encode()
            writer.write(b"HEAD" + ask + b"\r\n" + b"GET" + ask + key + b"\r\n")
            assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 401 ")
            assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200 ")
            writer.close()

    run(story())


@pytest.mark.parametrize("path", [b"/v1/models", b"/v1/models/m", b"/v1/nothing", b"/v1/chat/completions", b"/health"])
def test_a_head_request_gets_the_head_of_the_same_get(path: bytes) -> None:
    """RFC 9110 §8.6: a Content-Length is that of the body which a GET would have got, or none."""

    async def story() -> None:
        async with gateway_over(answer) as setup:
            heads = []
            for method in (b"GET ", b"HEAD "):
                reader, writer = await setup.raw()
                writer.write(method + path + b" HTTP/1.1\r\nhost: x\r\nx-request-id: one\r\nconnection: close\r\n\r\n")
                head, _, body = (await reader.read()).partition(b"\r\n\r\n")
                heads.append(head)
                assert bool(body) == (method == b"GET ")
                writer.close()
            assert heads[0] == heads[1]

    run(story())


@pytest.mark.parametrize(
    "connection", ["authorization", "Authorization, x-api-key", "keep-alive, X-API-KEY", "close, authorization"]
)
@pytest.mark.parametrize("tenants", [TENANTS, None], ids=["tenants", "open"])
def test_no_trick_with_connection_brings_a_key_to_an_engine(
    connection: str, tenants: dict[str, TenantSpec] | None
) -> None:
    async def story() -> None:
        async with gateway_over(answer, tenants=tenants) as setup:
            keys = [("authorization", f"Bearer {KEY}"), ("x-api-key", KEY)]
            for _ in range(2):
                response = await setup.post({"model": "m"}, headers=[*keys, ("connection", connection)])
                assert response.status == 200
                seen = setup.engines[0].asked[-1].headers
                named = {name.strip().lower() for name in connection.split(",")}
                left = {"authorization", "x-api-key"} - named if tenants is None else set()
                assert {"authorization", "x-api-key"} & set(seen) == left

    run(story())


def test_the_admin_address_takes_no_change_from_a_web_page() -> None:
    async def story() -> None:
        async with gateway_over(answer) as setup:
            url = f"http://127.0.0.1:{setup.gateway.admin_port}/state"
            page = await fetch(url, method="POST", headers=[("origin", "https://example.com")], timeout=20)
            assert (page.status, json.loads(page.body)["error"]["code"]) == (403, "local_only")
            program = await fetch(url, method="POST", timeout=20)
            assert json.loads(program.body)["error"]["code"] != "local_only"
            assert (await fetch(url, headers=[("origin", "https://example.com")], timeout=20)).status == 200

    run(story())


@pytest.mark.parametrize("command", [["gateway"], ["up"], ["up", "--port", "0"]])
def test_open_on_every_interface_is_refused_at_the_start(command: list[str], tmp_path: Path) -> None:
    cluster = tmp_path / "cluster.yaml"
    cluster.write_text(
        "gateway: {listen: 0.0.0.0:0, admin: 127.0.0.1:0}\n"
        "pools: {m: {engine: external, endpoints: ['http://127.0.0.1:9']}}\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "kilocard", command[0], str(cluster), *command[1:]],
        capture_output=True,
        text=True,
        timeout=90,
    )
    assert done.returncode == 2
    assert "gateway.allow_open: true" in done.stderr and "tenants" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_reload_does_not_open_a_gateway_that_others_reach() -> None:
    """`listen` stays as it was until a restart: a file with a loopback address and no tenants must not open 0.0.0.0."""

    async def story() -> None:
        pools = {"p": PoolSpec("p", "vllm", endpoints=("http://127.0.0.1:9",))}
        models = {"m": ModelSpec("m", {"p": 1})}
        public = GatewaySpec(listen="0.0.0.0:0", admin="127.0.0.1:0")
        one = Gateway(ClusterSpec(public, models, pools, TENANTS))
        for gateway in (GatewaySpec(listen="127.0.0.1:0", admin="127.0.0.1:0"), public):
            with pytest.raises(UsageError, match=r"0\.0\.0\.0"):
                one.reload(ClusterSpec(gateway, models, pools))
            assert not one.plane.access.open and one.spec.tenants == TENANTS
        one.reload(ClusterSpec(replace(public, allow_open=True), models, pools))
        assert one.plane.access.open

    run(story())


def test_a_tenant_that_a_reload_declares_brings_its_stored_keys_along(tmp_path: Path) -> None:
    with closing(connect(tmp_path / "k.db", *key_table.TABLES)) as store:
        key_table.add(store, key_table.Row("id", "team-b", "", key_table.hash_of("kc-b"), 1.0, None, None))

    async def story() -> None:
        async with gateway_over(answer) as setup:  # open: it has no tenants yet
            gateway, key = setup.gateway, [("x-api-key", "kc-b")]
            stored = replace(gateway.spec, gateway=replace(gateway.spec.gateway, store=str(tmp_path / "k.db")))
            ring = key_ring(stored, gateway)
            gateway.on_reload.append(lambda spec: ring.declare(spec.tenants))
            await ring.start()
            assert (await setup.post({"model": "m"}, headers=[("x-api-key", "no key of ours")])).status == 200
            for tenants, status in ((TENANTS, 401), ({**TENANTS, "team-b": TenantSpec("team-b")}, 200), (TENANTS, 401)):
                gateway.reload(replace(gateway.spec, tenants=tenants))
                assert (await setup.post({"model": "m"}, headers=key)).status == status
                keyed = await setup.post({"model": "m"}, headers=[("x-api-key", KEY)])
                assert keyed.status == 200
            await ring.close()

    run(story())
