"""A real nginx and an engine that writes down every byte: who reads what out of the same request."""

from __future__ import annotations

import asyncio
import contextlib
import re
import shutil
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

from stub_engine import JSON_ANSWER, whole

from parts import part_missing

NGINX = shutil.which("nginx") or shutil.which("/usr/sbin/nginx")


@dataclass
class Got:
    """One request as it stood on the wire."""

    head: bytes
    body: bytes

    @property
    def lines(self) -> list[bytes]:
        return self.head.split(b"\r\n")

    def values(self, name: bytes) -> list[bytes]:
        fields = (line.partition(b":") for line in self.lines[1:])
        return [value.strip() for key, _, value in fields if key.lower() == name]


@dataclass
class Recorder:
    """Takes requests apart by Content-Length alone and answers each. `strays`: bytes that are no whole request."""

    got: list[Got] = field(default_factory=list)
    strays: list[bytes] = field(default_factory=list)
    connections: int = 0
    port: int = 0

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n"))[:-4]
                one = Got(head, b"")
                length = one.values(b"content-length")
                one.body = await reader.readexactly(int(length[0]) if length else 0)
                if one.lines[0].startswith(b"GET /health") or one.lines[0].startswith(b"GET /metrics"):
                    writer.write(whole(b"{}"))
                    continue
                self.got.append(one)
                writer.write(whole(JSON_ANSWER))
        except asyncio.IncompleteReadError as error:
            if error.partial:
                self.strays.append(error.partial)
        except (ConnectionError, ValueError, asyncio.LimitOverrunError) as error:
            self.strays.append(repr(error).encode())
        finally:
            writer.close()


#: seconds
TURN = 0.005


@dataclass
class Said:
    """What a client was told: status codes in their order, and whether the connection was closed then."""

    statuses: list[int]
    closed: bool

    @property
    def refused(self) -> bool:
        return bool(self.statuses) and self.statuses[0] >= 400


async def ask(port: int, *pieces: bytes, patience: float = 0.15, answered: bool = False) -> Said:
    """Send the bytes; read answers until nothing has come for `patience` seconds after the last. `answered`: it is
    known that there will be an answer, however long a busy machine takes for it."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    said = b""
    closed = False
    try:
        with contextlib.suppress(ConnectionError):
            for piece in pieces:
                writer.write(piece)
                await writer.drain()
                await asyncio.sleep(0)
            while True:
                # an answer mostly comes at once; a second one, or the end, right behind it
                first = 20.0 if answered else patience
                data = await _more(reader, 0.03 if _is_whole(said) else patience if said else first)
                if data is None:
                    break
                if not data:
                    closed = True
                    break
                said += data
    finally:
        writer.close()
    return Said([int(code) for code in re.findall(rb"HTTP/1\.[01] (\d{3}) ", said)], closed)


async def _more(reader: asyncio.StreamReader, patience: float) -> bytes | None:
    """None: nothing came. The seconds are counted in turns of the loop, so that a pause of this process, in which
    nobody could have answered, is one turn."""
    reading = asyncio.ensure_future(reader.read(65536))
    for _ in range(round(patience / TURN)):
        await asyncio.wait([reading], timeout=TURN)
        if reading.done():
            return reading.result()
    reading.cancel()
    await asyncio.wait([reading])
    return None


def _is_whole(said: bytes) -> bool:
    head, end, rest = said.partition(b"\r\n\r\n")
    length = re.search(rb"(?i)content-length: (\d+)", head)
    return bool(end) and length is not None and len(rest) >= int(length[1])


_CONFIG = """
daemon off; master_process off; worker_processes 1; pid {folder}/pid; error_log {folder}/error.log info;
events {{ worker_connections 512; }}
http {{
  access_log off; client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/f; uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;
  keepalive_requests 100000;
  {servers}
}}
"""
_SERVER = """
  upstream to{port} {{ server 127.0.0.1:{target}; keepalive 8; }}
  server {{
    listen 127.0.0.1:{port};
    location / {{ proxy_pass http://to{port}; proxy_http_version 1.1; proxy_set_header Connection ""; }}
  }}
"""


@contextlib.asynccontextmanager
async def nginx(folder: Path, targets: dict[int, int]) -> AsyncIterator[None]:
    """A real one: it listens on each key and passes on to the value's port."""
    if NGINX is None:
        part_missing("nginx is not installed (Debian: apt-get install nginx)")
    servers = "".join(_SERVER.format(port=port, target=target) for port, target in targets.items())
    (folder / "nginx.conf").write_text(_CONFIG.format(folder=folder, servers=servers))
    process = await asyncio.create_subprocess_exec(
        NGINX, "-c", str(folder / "nginx.conf"), "-p", str(folder), stderr=asyncio.subprocess.PIPE
    )
    try:
        for port in targets:
            async with asyncio.timeout(10):
                while True:
                    try:
                        _, writer = await asyncio.open_connection("127.0.0.1", port)
                        writer.close()
                        break
                    except OSError:
                        assert process.returncode is None, (await process.communicate())[1].decode()
                        await asyncio.sleep(0.02)
        yield
    finally:
        if process.returncode is None:
            process.terminate()
        await process.communicate()
