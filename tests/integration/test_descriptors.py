"""A gateway that runs out of file descriptors says so; it neither hangs nor blames its replicas."""

from __future__ import annotations

import asyncio
import errno
import json
import resource
import subprocess
import sys
from pathlib import Path

import pytest
from answering import until_answers

from free_ports import free_port
from kilocard.core.errors import CapacityError
from kilocard.gateway.outbox import Outbox
from kilocard.gateway.replica_connections import ReplicaConnections
from kilocard.net.client import fetch

FILES = 160
#: (160 - 64) / 2
CLIENTS = 48
ASK = json.dumps({"model": "m", "stream": True, "messages": []}).encode()
REQUEST = b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n%s" % (len(ASK), ASK)


async def silent_engine(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Ready, and then not a byte for whoever asks for something."""
    head = await reader.readuntil(b"\r\n\r\n")
    if head.startswith(b"GET"):
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}")
        writer.close()
        return
    await reader.read()
    writer.close()


def test_whoever_there_is_no_descriptor_for_gets_a_503(tmp_path: Path) -> None:
    async def story() -> None:
        engine = await asyncio.start_server(silent_engine, "127.0.0.1", 0, backlog=4096)
        replica, port, admin = engine.sockets[0].getsockname()[1], free_port(), free_port()
        file = tmp_path / "cluster.yaml"
        file.write_text(
            f"gateway: {{listen: '127.0.0.1:{port}', admin: '127.0.0.1:{admin}'}}\n"
            f"pools: {{m: {{engine: external, endpoints: ['http://127.0.0.1:{replica}']}}}}\n"
        )
        gateway = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "kilocard.cli.main", "gateway", str(file)),
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (FILES, FILES)),
            stderr=subprocess.DEVNULL,
        )
        try:
            await until_answers(f"http://127.0.0.1:{admin}/readyz")
            clients = [await asyncio.open_connection("127.0.0.1", port) for _ in range(CLIENTS + 20)]
            for _, writer in clients:
                writer.write(REQUEST)
            refused = 0
            for reader, _ in clients[CLIENTS:]:
                answer = await asyncio.wait_for(reader.read(), 40)
                assert answer.startswith(b"HTTP/1.1 503"), answer[:100]
                assert b"too_many_connections" in answer
                refused += 1
            assert refused == 20
            state = json.loads((await fetch(f"http://127.0.0.1:{admin}/state", timeout=40)).body)
            assert state["gateway"]["in_flight"] == CLIENTS
            assert [replica["state"] for replica in state["replicas"]] == ["ready"]
            for _, writer in clients:
                writer.close()
        finally:
            gateway.kill()
            await gateway.wait()
            engine.close()

    asyncio.run(story())


def test_no_descriptor_for_the_way_to_a_replica_is_not_the_replicas_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    async def out_of_files(*_: object, **__: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    async def story() -> None:
        connections = ReplicaConnections("http://127.0.0.1:1", lambda: 0.0, Outbox())
        monkeypatch.setattr(asyncio.get_running_loop(), "create_connection", out_of_files)
        with pytest.raises(CapacityError) as error:
            await connections.open(1.0)
        assert error.value.code == "no_descriptors"

    asyncio.run(story())
