"""HTTPS for clients: real handshakes, and everything that a plain connection keeps."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import re
import socket
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import openai
import pytest
import trustme
from stub_engine import (
    DONE,
    END,
    JSON_ANSWER,
    PATIENT,
    ROLE,
    STREAM_HEAD,
    Asked,
    Setup,
    Wire,
    answer,
    chunk,
    delta,
    gateway_over,
    hang,
    run,
    stands_still,
    until,
    whole,
)

from kilocard.core.errors import SpecError
from kilocard.net.client import fetch
from kilocard.spec.model import GatewaySpec, Limits, Timeouts
from kilocard.spec.services import TlsSpec

BODY = json.dumps({"model": "m", "messages": [{"role": "user", "content": "hi"}]}).encode()


def request(body: bytes = BODY, extra: bytes = b"") -> bytes:
    head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\n%bcontent-length: %d\r\n\r\n"
    return head % (extra, len(body)) + body


@dataclass
class Files:
    """A CA, and a server's pair in files."""

    folder: Path
    ca: trustme.CA

    @property
    def spec(self) -> TlsSpec:
        return TlsSpec(str(self.folder / "tls.crt"), str(self.folder / "tls.key"))

    def issue(self, ca: trustme.CA | None = None) -> trustme.LeafCert:
        made = (ca or self.ca).issue_cert("localhost", "127.0.0.1")
        (self.folder / "tls.crt").write_bytes(b"".join(pem.bytes() for pem in made.cert_chain_pems))
        (self.folder / "tls.key").write_bytes(made.private_key_pem.bytes())
        return made

    def client(self) -> ssl.SSLContext:
        context = ssl.create_default_context()
        self.ca.configure_trust(context)
        return context


@pytest.fixture
def files(tmp_path: Path) -> Files:
    made = Files(tmp_path, trustme.CA())
    made.issue()
    return made


@contextlib.asynccontextmanager
async def secured(files: Files, *scripts: Any, **more: Any) -> AsyncIterator[Setup]:
    spec = more.pop("tls", files.spec)
    async with gateway_over(*(scripts or (answer,)), gateway=GatewaySpec(tls=spec), **more) as setup:
        yield setup


async def connect(
    setup: Setup, context: ssl.SSLContext, **more: Any
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection("127.0.0.1", setup.gateway.port, ssl=context, **more)


async def ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, data: bytes = b"") -> tuple[bytes, bytes]:
    writer.write(data or request())
    head = await reader.readuntil(b"\r\n\r\n")
    lines = head.lower().split(b"\r\n")
    length = next(int(line.split(b":")[1]) for line in lines if line.startswith(b"content-length"))
    return head, await reader.readexactly(length)


async def meters(setup: Setup) -> str:
    page = await fetch(f"http://127.0.0.1:{setup.gateway.admin_port}/metrics", timeout=20)
    return page.body.decode()


def serial(writer: asyncio.StreamWriter) -> str:
    return str(writer.get_extra_info("peercert")["serialNumber"])


def test_openais_client_over_https(files: Files) -> None:
    async def story() -> None:
        async with secured(files) as setup:
            http = openai.DefaultAsyncHttpxClient(verify=files.client())
            base = f"https://127.0.0.1:{setup.gateway.port}/v1"
            client = openai.AsyncOpenAI(base_url=base, api_key="none", http_client=http)
            messages: Any = [{"role": "user", "content": "hi"}]
            whole_answer = await client.chat.completions.create(model="m", messages=messages)
            assert whole_answer.choices[0].message.content == "hello"
            pieces = [
                piece.choices[0].delta.content or ""
                async for piece in await client.chat.completions.create(model="m", messages=messages, stream=True)
                if piece.choices
            ]
            assert "".join(pieces) == "hello"
            await client.close()

    run(story())


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_versions_and_alpn(files: Files, version: ssl.TLSVersion) -> None:
    async def story() -> None:
        async with secured(files) as setup:
            context = files.client()
            context.minimum_version = context.maximum_version = version
            context.set_alpn_protocols(["h2", "http/1.1"])
            reader, writer = await connect(setup, context)
            session = writer.get_extra_info("ssl_object")
            assert session.selected_alpn_protocol() == "http/1.1"
            for _ in range(3):  # kept alive
                assert (await ask(reader, writer))[1] == JSON_ANSWER
            writer.close()
            old = files.client()
            with pytest.warns(DeprecationWarning):
                old.maximum_version = ssl.TLSVersion.TLSv1_1
                old.minimum_version = ssl.TLSVersion.TLSv1_1
            old.set_ciphers("ALL:@SECLEVEL=0")
            with pytest.raises(ssl.SSLError):
                await connect(setup, old)

    run(story())


def test_bytes_that_come_one_by_one(files: Files) -> None:
    """Records cut anywhere, on the way in and in the handshake itself."""

    async def story() -> None:
        async with secured(files) as setup:
            raw = socket.create_connection(("127.0.0.1", setup.gateway.port))
            raw.setblocking(False)
            loop = asyncio.get_running_loop()
            inward, outward = ssl.MemoryBIO(), ssl.MemoryBIO()
            tls = files.client().wrap_bio(inward, outward, server_hostname="localhost")

            async def pump() -> None:
                for byte in outward.read():
                    await loop.sock_sendall(raw, bytes([byte]))
                    await asyncio.sleep(0)

            while True:
                try:
                    tls.do_handshake()
                    break
                except ssl.SSLWantReadError:
                    await pump()
                    inward.write(await loop.sock_recv(raw, 65536))
            tls.write(request())
            await pump()
            got = b""
            while JSON_ANSWER not in got:
                inward.write(await loop.sock_recv(raw, 7))
                with contextlib.suppress(ssl.SSLWantReadError):
                    got += tls.read(65536)
            raw.close()

    run(story())


def test_large_bodies_both_ways(files: Files) -> None:
    big = b'{"x":"' + b"y" * (8 * 1024 * 1024) + b'"}'

    async def script(asked: Asked, wire: Wire) -> None:
        await wire.send(whole(big))

    async def story() -> None:
        async with secured(files, script) as setup:
            reader, writer = await connect(setup, files.client(), limit=64 * 1024 * 1024)
            body = b'{"model":"m","prompt":"' + b"x" * (4 * 1024 * 1024) + b'"}'
            assert (await ask(reader, writer, request(body)))[1] == big
            assert setup.engines[0].asked[0].body == body
            writer.close()

    run(story())


def test_every_event_of_a_long_stream_goes_through_tls(files: Files) -> None:
    """One event a read is the usual stream, and the one that passes the gateway unread."""
    events = [delta(f"piece {number}") for number in range(30)]

    async def script(asked: Asked, wire: Wire) -> None:
        await wire.send(STREAM_HEAD + chunk(ROLE))
        for event in events:
            await wire.send(chunk(event))
            await asyncio.sleep(0.002)
        await wire.send(chunk(DONE) + END)

    async def story() -> None:
        async with secured(files, script) as setup:
            reader, writer = await connect(setup, files.client())
            writer.write(request(BODY[:-1] + b',"stream":true}'))
            await reader.readuntil(b"\r\n\r\n")
            got = await reader.readuntil(b"0\r\n\r\n")
            pieces = re.split(rb"(?:^|\r\n)[0-9a-f]+\r\n", got)
            assert b"".join(pieces) == ROLE + b"".join(events) + DONE + b"\r\n"
            writer.close()

    run(story())


def test_a_slow_reader_holds_its_engine_back_and_no_buffer_grows(files: Files) -> None:
    sent = 0

    async def script(asked: Asked, wire: Wire) -> None:
        nonlocal sent
        await wire.send(STREAM_HEAD + chunk(ROLE))
        for _ in range(400):
            await wire.send(chunk(delta("x" * 60_000)))
            sent += 60_000
        await wire.send(chunk(DONE) + END)

    async def story() -> None:
        async with secured(files, script, timeouts=Timeouts(idle=30.0)) as setup:
            sock = socket.socket()
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)  # else the kernel may hold 32 MB for it
            sock.setblocking(False)
            await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", setup.gateway.port))
            reader, writer = await asyncio.open_connection(
                sock=sock, ssl=files.client(), server_hostname="127.0.0.1", limit=1024
            )
            writer.write(request(BODY[:-1] + b',"stream":true}'))
            await reader.readuntil(b"\r\n\r\n")
            assert await stands_still(lambda: sent) < 16_000_000, "the engine is paused"
            (connection,) = setup.gateway.plane.connections
            assert connection.transport.get_write_buffer_size() < 1_000_000
            got = bytearray()
            while not got.endswith(b"0\r\n\r\n"):
                got += await reader.read(1 << 20)
            assert got.count(b"x" * 60_000) == 400 and b"[DONE]" in got
            writer.close()

    run(story())


def test_1_a_client_that_leaves_frees_the_engine_at_once(files: Files) -> None:
    async def story() -> None:
        for leave in ("close", "abort"):
            async with secured(files, hang, timeouts=Timeouts(first_token=60.0)) as setup:
                _, writer = await connect(setup, files.client())
                writer.write(request())
                while not setup.engines[0].asked:
                    await asyncio.sleep(0.01)
                if leave == "close":
                    writer.close()  # with a goodbye
                else:
                    writer.transport.abort()
                await until(setup.engines[0].asked[0].gone.is_set)

    run(story())


def test_1_behind_a_long_pipeline_the_end_of_a_tls_client_is_seen_too(files: Files) -> None:
    """Nothing is read of it meanwhile, so neither is a goodbye: the kernel knows that its connection has ended."""

    async def story() -> None:
        async with secured(files, hang, timeouts=replace(PATIENT, first_token=40.0, total=50.0)) as setup:
            _, writer = await connect(setup, files.client())
            writer.write(request() * 40)
            while not setup.engines[0].asked:
                await asyncio.sleep(0.01)
            writer.transport.abort()
            await asyncio.wait_for(setup.engines[0].asked[0].gone.wait(), 30)  # it is looked for once a second
            await setup.settles()
            assert len(setup.engines[0].asked) == 1

    run(story())


def test_a_refused_request_gets_its_answer_and_the_end_of_the_connection(files: Files) -> None:
    async def story() -> None:
        async with secured(files, limits=Limits(body=1000)) as setup:
            reader, writer = await connect(setup, files.client())
            head, body = await ask(reader, writer, request(b"x" * 5000))
            assert head.startswith(b"HTTP/1.1 413") and b"connection: close" in head
            assert json.loads(body)["error"]["code"] == "body_too_large"
            writer.close()
            reader, writer = await connect(setup, files.client())
            head, _ = await ask(reader, writer, request(extra=b"connection: close\r\n"))
            assert await reader.read() == b"", "with a goodbye: no ragged end"
            writer.close()

    run(story())


def test_plain_http_to_the_tls_port_is_told_so(files: Files) -> None:
    async def story() -> None:
        async with secured(files) as setup:
            reader, writer = await setup.raw()
            head, body = await ask(reader, writer)
            assert head.startswith(b"HTTP/1.1 400") and "https://" in json.loads(body)["error"]["message"]
            writer.write(b"more")
            assert await reader.read() == b""
            writer.close()
            assert 'kilocard_tls_handshakes_total{outcome="plain"} 1' in await meters(setup)

    run(story())


def test_tls_to_a_plain_port_is_told_so_too() -> None:
    async def story() -> None:
        async with gateway_over(answer) as setup:
            with pytest.raises(ssl.SSLError):
                await connect(setup, ssl.create_default_context())

    run(story())


def test_handshakes_are_counted_and_have_their_time(files: Files) -> None:
    async def story() -> None:
        async with secured(files, limits=Limits(connections=2, client_idle=1.5)) as setup:
            plane = setup.gateway.plane
            silent = [await setup.raw() for _ in range(2)]  # no handshake at all
            while len(plane.connections) < 2:
                await asyncio.sleep(0.01)
            with pytest.raises((ssl.SSLError, ConnectionError)):
                await connect(setup, files.client())
            for reader, writer in silent:
                async with asyncio.timeout(20):
                    with contextlib.suppress(ConnectionError):
                        assert await reader.read() == b""
                writer.close()
            reader, writer = await connect(setup, files.client())
            assert (await ask(reader, writer))[1] == JSON_ANSWER
            writer.close()
            page = await meters(setup)
            assert 'kilocard_tls_handshakes_total{outcome="refused"} 1' in page
            assert 'kilocard_tls_handshakes_total{outcome="failed"} 2' in page
            while plane.connections:
                await asyncio.sleep(0.01)

    run(story())


def test_garbage_in_place_of_a_handshake_and_within_a_session(files: Files) -> None:
    async def story() -> None:
        async with secured(files) as setup:
            reader, writer = await setup.raw()
            writer.write(b"\x16\x03\x01\x00\x05hello" + b"\xff" * 500)
            await reader.read()
            writer.close()
            reader, writer = await connect(setup, files.client())
            await ask(reader, writer)
            sock = writer.get_extra_info("socket")
            duplicate = socket.fromfd(sock.fileno(), sock.family, sock.type)
            duplicate.send(b"not a record" * 10)
            with contextlib.suppress(ConnectionError, ssl.SSLError):
                assert await reader.read() == b""
            duplicate.close()
            writer.close()
            while setup.gateway.plane.connections:
                await asyncio.sleep(0.01)

    run(story())


def test_clients_need_a_certificate_where_the_file_says_so(files: Files, tmp_path: Path) -> None:
    ours = trustme.CA()
    ours.cert_pem.write_to_path(tmp_path / "clients.pem")

    async def story() -> None:
        async with secured(files, tls=replace(files.spec, client_ca=str(tmp_path / "clients.pem"))) as setup:
            known, stranger, nobody = files.client(), files.client(), files.client()
            ours.issue_cert("client").configure_cert(known)
            trustme.CA().issue_cert("client").configure_cert(stranger)
            reader, writer = await connect(setup, known)
            assert (await ask(reader, writer))[1] == JSON_ANSWER
            writer.close()
            for context in (stranger, nobody):
                with pytest.raises((ssl.SSLError, ConnectionError, asyncio.IncompleteReadError)):
                    await ask(*await connect(setup, context))  # TLS 1.3 tells it with the first read
            assert len(setup.engines[0].asked) == 1

    run(story())


def test_a_new_certificate_is_for_new_connections_and_a_broken_one_for_nobody(
    files: Files, caplog: pytest.LogCaptureFixture
) -> None:
    async def story() -> None:
        async with secured(files) as setup:
            certificates = setup.gateway._certificates
            assert certificates is not None

            async def two_looks() -> None:
                await certificates.look()
                await certificates.look()

            old = await connect(setup, files.client())
            first = serial(old[1])
            files.issue()
            await certificates.look()
            writer = (await connect(setup, files.client()))[1]
            assert serial(writer) == first, "a pair is two files: it has to lie still"
            writer.close()
            await certificates.look()
            reader, writer = await connect(setup, files.client())
            second = serial(writer)
            assert second != first and (await ask(reader, writer))[1] == JSON_ANSWER
            assert (await ask(*old))[1] == JSON_ANSWER, "a running connection goes on"

            other = trustme.CA().issue_cert("localhost")
            for text in (other.private_key_pem.bytes(), b"nonsense"):
                Path(files.spec.key).write_bytes(text)  # noqa: ASYNC240  # a small file of the test's own
                for _ in range(2):
                    await two_looks()
                probe = (await connect(setup, files.client()))[1]
                assert serial(probe) == second
                probe.close()
            Path(files.spec.key).unlink()  # noqa: ASYNC240  # as above
            await two_looks()
            said = [record.getMessage() for record in caplog.records if "not taken over" in record.getMessage()]
            assert len(said) == 3 and "is not the key of" in said[0] and "can't be read" in said[2]
            page = await meters(setup)
            assert 'kilocard_tls_certificate_reloads_total{outcome="failed"} 3' in page
            assert "kilocard_tls_certificate_not_after_timestamp_seconds" in page

            files.issue()
            setup.gateway.reload(setup.gateway.spec)  # as SIGHUP does: no need to wait
            probe = (await connect(setup, files.client()))[1]
            assert serial(probe) not in {first, second}
            for one in (probe, writer, old[1]):
                one.close()

    caplog.set_level(logging.INFO)
    run(story())


def test_a_cluster_file_with_a_bad_pair_is_refused_as_a_whole(files: Files) -> None:
    async def story() -> None:
        async with secured(files) as setup:
            spec = setup.gateway.spec
            tls = replace(files.spec, certificate="/nowhere.pem")
            with pytest.raises(SpecError, match=r"gateway.tls.certificate: /nowhere.pem can't be read"):
                setup.gateway.reload(replace(spec, gateway=replace(spec.gateway, tls=tls, drain=77.0)))
            assert setup.gateway.spec == spec

    run(story())


def rsa_key() -> bytes:
    """Of another kind than the certificate's."""
    issued = trustme.CA().issue_cert("localhost", key_type=trustme.KeyType.RSA)
    return issued.private_key_pem.bytes()


@pytest.mark.parametrize(
    ("break_it", "said"),
    [
        (lambda files: Path(files.spec.key).unlink(), "gateway.tls.key"),
        (lambda files: (Path(files.spec.key).unlink(), os.mkfifo(files.spec.key)), "it is no regular file"),
        (lambda files: Path(files.spec.certificate).write_text("?"), "no certificate and key in PEM form"),
        (lambda files: Path(files.spec.key).write_bytes(trustme.CA().private_key_pem.bytes()), "is not the key of"),
        (lambda files: Path(files.spec.key).write_bytes(rsa_key()), "is not the key of"),
    ],
)
def test_a_start_without_a_good_pair_is_exit_2(files: Files, tmp_path: Path, break_it: Any, said: str) -> None:
    break_it(files)
    cluster = tmp_path / "c.yaml"
    cluster.write_text(
        f"gateway: {{listen: '127.0.0.1:0', admin: '127.0.0.1:0',"
        f" tls: {{certificate: {files.spec.certificate}, key: {files.spec.key}}}}}\n"
        "pools: {p: {engine: vllm, endpoints: ['http://127.0.0.1:9']}}\n"
    )
    command = [sys.executable, "-m", "kilocard", "gateway", str(cluster)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and said in " ".join(done.stderr.split()) and "Traceback" not in done.stderr
