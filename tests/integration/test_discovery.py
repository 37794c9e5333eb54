"""Each source of discovery against the real thing it reads: files, the resolver's answers, an API server."""

from __future__ import annotations

import asyncio
import json
import os
import random
import shutil
import socket
import ssl
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from kubernetes_stub import KubernetesStub

from kilocard.core.errors import UsageError
from kilocard.core.replica import Change, Endpoint, Found, Leaving, Lost
from kilocard.net.kubernetes_api import ApiAccess, ApiServer, in_cluster
from kilocard.scrape.discovery.configured import configured
from kilocard.scrape.discovery.dns import DnsDiscovery
from kilocard.scrape.discovery.file import FileDiscovery
from kilocard.scrape.discovery.kubernetes import KubernetesDiscovery
from kilocard.scrape.discovery.source import Discovery
from kilocard.spec.model import ClusterSpec, PoolSpec

READY = {"ready": True}
UNREADY = {"ready": False}
TERMINATING = {"ready": False, "serving": True, "terminating": True}


class Heard:
    def __init__(self) -> None:
        self.changes: list[Change] = []
        self.serving: dict[str, str] = {}
        self.leaving: set[str] = set()

    def __call__(self, change: Change) -> None:
        self.changes.append(change)
        if isinstance(change, Found):
            self.serving[change.endpoint.replica] = change.endpoint.url
            self.leaving.discard(change.endpoint.replica)
        else:
            self.serving.pop(change.replica, None)
            self.leaving.discard(change.replica)
            if isinstance(change, Leaving):
                self.leaving.add(change.replica)

    async def until(self, true: Callable[[], bool], what: str = "") -> None:
        try:
            async with asyncio.timeout(30):
                while not true():  # some conditions are not ours to signal
                    await asyncio.sleep(0.01)
        except TimeoutError:
            raise AssertionError(f"never came: {what}; heard {self.changes}") from None


@asynccontextmanager
async def running(source: Discovery) -> AsyncIterator[Heard]:
    heard = Heard()
    source.start(heard)
    try:
        yield heard
    finally:
        await source.close()
        others = [t.get_name() for t in asyncio.all_tasks() if "discovery" in t.get_name()]
        assert not others


def run(test: Awaitable[Any]) -> None:
    asyncio.run(test)  # type: ignore[arg-type]  # a coroutine, in each test


# --- cluster file ---


def test_static_endpoints_are_found_at_once() -> None:
    async def test() -> None:
        pools = {
            "a": PoolSpec("a", "external", endpoints=("http://h:1", "http://[::1]:2", "http://h:1")),
            "b": PoolSpec("b", "external"),
        }
        (source,) = configured(ClusterSpec(pools=pools)).values()
        async with running(source) as heard:
            assert heard.changes == [
                Found(Endpoint("a/h:1", "a", "http://h:1")),
                Found(Endpoint("a/[::1]:2", "a", "http://[::1]:2")),
            ]

    run(test())


def test_a_pool_with_dns_has_a_source_of_its_own() -> None:
    (source,) = configured(ClusterSpec(pools={"a": PoolSpec("a", "external", dns="vllm.ai.svc:8000")})).values()
    assert source.name == "DNS vllm.ai.svc:8000 of pool a"


def test_a_pool_with_a_service_is_read_from_its_endpoint_slices() -> None:
    async def test() -> None:
        stub = KubernetesStub()
        stub.put("vllm-1", w1=READY)
        await stub.start()
        for written in ("ai/vllm", "ai/vllm:http", "ai/vllm:8000"):
            spec = ClusterSpec(pools={"a": PoolSpec("a", "external", service=written)})
            (source,) = configured(spec, {"KILOCARD_KUBERNETES_API": stub.url}).values()
            async with running(source) as heard:
                await heard.until(lambda heard=heard: bool(heard.serving), f"w1 of {written}")  # type: ignore[misc]  # bound here
                assert heard.serving == {"a/w1": "http://10.0.0.1:8000"}
        await stub.stop()

    run(test())


def test_a_service_without_a_namespace_is_in_the_gateways_own() -> None:
    (source,) = configured(
        ClusterSpec(pools={"a": PoolSpec("a", "external", service="b")}), {"KILOCARD_KUBERNETES_API": "http://h:1"}
    ).values()
    assert source.name == "Kubernetes service default/b of pool a"


def test_a_service_outside_a_cluster_says_what_is_missing() -> None:
    with pytest.raises(UsageError, match="not a pod with a service account"):
        configured(ClusterSpec(pools={"a": PoolSpec("a", "external", service="b")}), {})


# --- file ---


def rewrite(path: Path, text: str) -> None:
    new = path.with_suffix(".new")
    new.write_text(text)
    os.replace(new, path)


def test_a_pipe_in_place_of_a_file_is_not_waited_for(tmp_path: Path) -> None:
    async def test() -> None:
        path = tmp_path / "endpoints.yaml"
        os.mkfifo(path)
        source = FileDiscovery(path, ["a"], every=0.02, grace=0.1)
        async with running(source) as heard:
            await heard.until(lambda: "no regular file" in str(source.problem), "a pipe")
            rewrite(path, "a: [http://h:1]\n")
            await heard.until(lambda: set(heard.serving) == {"a/h:1"}, "a file")

    asyncio.run(test())


def test_a_file_is_followed_and_a_bad_one_changes_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        path = tmp_path / "endpoints.yaml"
        source = FileDiscovery(path, ["a"], every=0.02, grace=0.1)
        async with running(source) as heard:
            await heard.until(lambda: source.problem is not None, "missing file")
            assert "can't be read" in str(source.problem)
            rewrite(path, "a: [http://h:1, http://h:2]\n")
            await heard.until(lambda: set(heard.serving) == {"a/h:1", "a/h:2"}, "two replicas")
            assert source.problem is None
            for bad in ("a: [http://h:1", "", "b: [http://h:1]", "a: http://h:1", "\udcff"):
                path.with_suffix(".new").write_bytes(bad.encode("utf-8", "surrogateescape"))
                os.replace(path.with_suffix(".new"), path)
                await heard.until(lambda: source.problem is not None, f"problem with {bad!r}")
                assert len(heard.serving) == 2
                rewrite(path, "a: [http://h:1, http://h:2]\n")
                await heard.until(lambda: source.problem is None, "well again")
            path.unlink()
            await heard.until(lambda: source.problem is not None, "deleted file")
            await asyncio.sleep(0.2)
            assert len(heard.serving) == 2
            before = len(heard.changes)
            rewrite(path, "a: [http://h:2]\n")
            await heard.until(lambda: len(heard.changes) == before + 2, "leaving, then lost")
            gone = "no longer in endpoints.yaml"
            assert heard.changes[before:] == [Leaving("a/h:1", gone), Lost("a/h:1", gone)]

    run(test())
    warnings = [record for record in caplog.records if record.levelname == "WARNING"]
    assert len(warnings) == 6  # a missing file is told once in a minute, each other cause too


# --- DNS ---


class Resolver:
    """Stands in for loop.getaddrinfo."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.answer: list[str] | Exception = []
        self.asked = 0
        self._monkeypatch = monkeypatch

    def install(self) -> None:
        async def getaddrinfo(host: str, port: int, **_: Any) -> list[Any]:
            self.asked += 1
            if isinstance(self.answer, Exception):
                raise self.answer
            return [
                (socket.AF_INET6, socket.SOCK_STREAM, 6, "", (a, port, 0, 0))
                if ":" in a
                else (socket.AF_INET, socket.SOCK_STREAM, 6, "", (a, port))
                for a in self.answer
            ]

        self._monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", getaddrinfo)


def test_addresses_come_and_go_and_errors_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        resolver = Resolver(monkeypatch)
        resolver.install()
        resolver.answer = ["10.0.0.1", "10.0.0.2", "fd00::1"]
        source = DnsDiscovery("a", "vllm:8000", every=0.02, grace=0.1)
        async with running(source) as heard:
            await heard.until(lambda: set(heard.serving) == {"a/10.0.0.1:8000", "a/10.0.0.2:8000"}, "two")
            for error in (
                socket.gaierror(socket.EAI_AGAIN, "try again"),
                socket.gaierror(socket.EAI_NONAME, "no"),
                None,
            ):
                resolver.answer = error or []
                await heard.until(lambda: source.problem is not None, "problem")
                asked = resolver.asked
                await heard.until(lambda asked=asked: resolver.asked > asked + 3, "more questions")
                assert len(heard.serving) == 2
                resolver.answer = ["10.0.0.2", "10.0.0.1"]
                await heard.until(lambda: source.problem is None, "well again")
            assert len(heard.changes) == 2
            resolver.answer = ["10.0.0.2", "10.0.0.3"]
            await heard.until(lambda: len(heard.changes) == 5, "found, leaving, lost")
            assert heard.changes[2] == Found(Endpoint("a/10.0.0.3:8000", "a", "http://10.0.0.3:8000"))
            assert [type(change) for change in heard.changes[3:]] == [Leaving, Lost]
            resolver.answer = ["fd00::1"]
            await heard.until(lambda: set(heard.serving) == {"a/[fd00::1]:8000"}, "IPv6 only")

    run(test())


def test_the_real_resolver() -> None:
    async def test() -> None:
        async with running(DnsDiscovery("a", "localhost:8000", every=0.05)) as heard:
            await heard.until(lambda: bool(heard.serving), "localhost")
        source = DnsDiscovery("a", "no-such-host.invalid:8000", every=0.05)
        async with running(source) as heard:
            await heard.until(lambda: source.problem is not None, "unknown host")

    run(test())


@pytest.mark.parametrize("address", ["vllm", "http://vllm:1/path", "ftp://vllm:1"])
def test_dns_wants_host_and_port(address: str) -> None:
    with pytest.raises(UsageError):
        DnsDiscovery("a", address)


# --- Kubernetes ---


def kubernetes(stub: KubernetesStub, **access: Any) -> KubernetesDiscovery:
    api = ApiServer(ApiAccess(stub.url, "ai", **access))
    return KubernetesDiscovery("p", "vllm", api=api, rng=random.Random(1))


@asynccontextmanager
async def cluster(**pods: dict[str, Any]) -> AsyncIterator[tuple[KubernetesStub, KubernetesDiscovery, Heard]]:
    stub = KubernetesStub()
    stub.put("s", **pods)
    await stub.start()
    source = kubernetes(stub)
    try:
        async with running(source) as heard:
            await heard.until(lambda: stub.watched, "a watch")
            yield stub, source, heard
    finally:
        await stub.stop()


def test_the_life_of_a_pod() -> None:
    async def test() -> None:
        async with cluster(w1=READY, w2=UNREADY) as (stub, source, heard):
            assert heard.serving == {"p/w1": "http://10.0.0.1:8000"}
            stub.put("s", w1=READY, w2=READY)
            await heard.until(lambda: "p/w2" in heard.serving, "w2")
            stub.put("s", w1=TERMINATING, w2=READY)
            await heard.until(lambda: "p/w1" in heard.leaving, "w1 leaving")
            stub.put("s", w2=READY)
            await heard.until(lambda: "p/w1" not in heard.leaving, "w1 lost")
            assert [type(change) for change in heard.changes] == [Found, Found, Leaving, Lost]
            assert (stub.lists, stub.watches) == (1, 1)
            assert source.problem is None

    run(test())


def test_what_was_missed_while_the_watch_was_broken_is_noticed() -> None:
    async def test() -> None:
        async with cluster(w1=READY, w2=READY) as (stub, _, heard):
            stub.mute = True
            stub.put("s", w2=READY)
            stub.put("t", w3=READY)
            stub.mute = False
            assert len(heard.changes) == 2
            stub.break_watches()
            await heard.until(lambda: set(heard.serving) == {"p/w2", "p/w3"}, "the truth")
            assert stub.lists == 2

    run(test())


@pytest.mark.parametrize("by_event", [True, False])
def test_an_expired_version_means_list(by_event: bool) -> None:
    async def test() -> None:
        async with cluster(w1=READY) as (stub, _, heard):
            stub.gone_by_event = by_event
            stub.mute = True
            stub.put("s", w1=READY, w2=READY)
            stub.forget_history()
            stub.mute = False
            stub.end_watches()  # in good order, so our version is used again and is too old
            await heard.until(lambda: set(heard.serving) == {"p/w1", "p/w2"}, "the truth")
            assert stub.lists == 2

    run(test())


def test_a_watch_that_the_server_ends_goes_on_from_the_last_bookmark() -> None:
    async def test() -> None:
        async with cluster(w1=READY) as (stub, _, heard):
            stub.bookmark()
            version = stub.version
            await asyncio.sleep(0.05)
            stub.end_watches()
            await heard.until(lambda: stub.watches == 2, "the second watch")
            assert f"resourceVersion={version}" in stub.requests[-1]
            stub.put("s", w1=READY, w2=READY)
            await heard.until(lambda: len(heard.serving) == 2, "w2")
            assert stub.lists == 1

    run(test())


@pytest.mark.parametrize("refuse", [500, 403, 404])
def test_an_api_server_that_refuses_changes_nothing(refuse: int) -> None:
    async def test() -> None:
        async with cluster(w1=READY) as (stub, source, heard):
            stub.refuse = refuse
            stub.break_watches()
            await heard.until(lambda: f"answered {refuse}: not today" in str(source.problem), "a problem")
            assert set(heard.serving) == {"p/w1"}
            stub.refuse = None
            await heard.until(lambda: stub.watched, "a watch again")
            assert source.problem is None
            assert len(heard.changes) == 1

    run(test())


def test_a_server_that_lists_but_does_not_watch_is_asked_less_and_less(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        async with cluster(w1=READY) as (stub, _, heard):
            stub.break_every_watch = True
            stub.break_watches()
            await heard.until(lambda: stub.watches >= 6, "more watches")
            assert set(heard.serving) == {"p/w1"}
            lists = stub.lists
            await asyncio.sleep(1.0)
            assert stub.lists <= lists + 1

    run(test())
    assert len([record for record in caplog.records if record.levelname == "WARNING"]) <= 2


def test_an_api_server_that_is_away_changes_nothing() -> None:
    async def test() -> None:
        async with cluster(w1=READY, w2=READY) as (stub, source, heard):
            await stub.stop()
            await heard.until(lambda: "can't connect" in str(source.problem), "a problem")
            assert len(heard.serving) == 2
            stub.put("s", w2=READY)
            await stub.start(port=int(stub.url.rpartition(":")[2]))
            await heard.until(lambda: set(heard.serving) == {"p/w2"}, "the truth")

    run(test())


def test_nonsense_in_the_watch_means_list() -> None:
    async def test() -> None:
        async with cluster(w1=READY) as (stub, _, heard):
            stub.mute = True
            stub.put("s", w1=READY, w2=READY)
            stub.mute = False
            stub.say(b"<html>bad gateway</html>\n")
            await heard.until(lambda: len(heard.serving) == 2, "the truth")

    run(test())


def test_the_last_endpoint_goes_only_by_a_list() -> None:
    async def test() -> None:
        async with cluster(w1=READY) as (stub, source, heard):
            stub.delete("s")
            await heard.until(lambda: not heard.serving, "an empty set")
            assert stub.lists == 2
            assert "does it exist" in str(source.problem)
            await heard.until(lambda: stub.watched, "a watch again")
            stub.put("s", w1=READY)
            await heard.until(lambda: set(heard.serving) == {"p/w1"}, "w1 again")

    run(test())


def test_events_that_come_in_pieces() -> None:
    async def test() -> None:
        async with cluster(w1=READY) as (stub, _, heard):
            stub.mute = True
            stub.put("s", w1=READY, w2=READY)
            line = json.dumps(stub.history[-1][1]).encode() + b"\n"
            for start in range(0, len(line), 7):
                stub.say(line[start : start + 7])
                await asyncio.sleep(0)
            await heard.until(lambda: len(heard.serving) == 2, "w2")
            assert stub.lists == 1

    run(test())


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl for a certificate")
def test_https_with_a_token_that_rotates(tmp_path: Path) -> None:
    key, certificate, token = tmp_path / "key.pem", tmp_path / "ca.crt", tmp_path / "token"
    subprocess.run(
        "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=stub "
        f"-addext subjectAltName=IP:127.0.0.1 -keyout {key} -out {certificate}".split(),
        check=True,
        capture_output=True,
    )

    async def test() -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        stub = KubernetesStub(token="first")
        stub.put("s", w1=READY)
        await stub.start(context)
        token.write_text("first\n")
        source = kubernetes(stub, token_file=token, ca_file=certificate)
        async with running(source) as heard:
            await heard.until(lambda: stub.watched, "a watch")
            stub.token = "second"
            stub.put("s", w1=READY, w2=READY)
            stub.break_watches()
            await heard.until(lambda: "401" in str(source.problem), "a problem")
            token.write_text("second\n")
            await heard.until(lambda: len(heard.serving) == 2 and source.problem is None, "w2")
            assert len(heard.serving) == 2
        untrusting = kubernetes(stub, token_file=token)
        async with running(untrusting) as heard:
            await heard.until(lambda: "TLS failed" in str(untrusting.problem), "a TLS problem")
        await stub.stop()

    run(test())


def test_access_from_inside_a_pod(tmp_path: Path) -> None:
    env = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "6443"}
    with pytest.raises(UsageError, match="token is missing"):
        in_cluster(env, tmp_path)
    (tmp_path / "token").write_text("t")
    (tmp_path / "namespace").write_text("ai\n")
    assert in_cluster(env, tmp_path) == ApiAccess("https://[fd00::1]:6443", "ai", tmp_path / "token", None)
    with pytest.raises(UsageError, match="KUBERNETES_SERVICE_HOST is not set"):
        in_cluster({}, tmp_path)
