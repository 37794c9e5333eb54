"""A real Redis of one's own: in a folder, on a free port of the loopback, gone afterwards."""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

from free_ports import free_port
from kilocard.stores.resp import Replies, Reply, command
from parts import part_missing


class RedisServer:
    """`start` it, `crash` it, `start` it again; with `aof` the data stay."""

    def __init__(self, folder: Path, *options: str, aof: bool = False, port: int | None = None) -> None:
        found = shutil.which("redis-server")
        if found is None:
            part_missing("redis-server is not installed: apt-get install redis-server")
        self._program = found
        self._folder = folder
        self._options = [*options, "--appendonly", "yes" if aof else "no", "--save", ""]
        self.port = port or free_port()
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with (self._folder / "redis.log").open("ab") as log:
            self._process = subprocess.Popen(
                [
                    self._program, "--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self._folder),
                    "--enable-debug-command", "yes", *self._options,
                ],
                stdout=log, stderr=log,
            )  # fmt: skip
        end = time.monotonic() + 40
        while time.monotonic() < end:
            assert self._process.poll() is None, (self._folder / "redis.log").read_text()
            try:
                socket.create_connection(("127.0.0.1", self.port)).close()
            except OSError:
                time.sleep(0.01)
            else:
                return
        raise AssertionError("redis-server does not answer")

    def crash(self) -> None:
        """At once, in the middle of whatever it does."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(40)
            self._process = None

    def hang(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def call(self, *words: bytes | str | int) -> Reply:
        """One command on a connection of its own."""
        caller = Caller(self.port)
        try:
            return caller(*words)
        finally:
            caller.close()


class Caller:
    """One blocking connection, for what a test wants to know or to break."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=40)
        self._replies = Replies()
        self._found: list[Reply] = []

    def __call__(self, *words: bytes | str | int) -> Reply:
        return self.raw(command(*words))

    def raw(self, words: bytes) -> Reply:
        self.send(words)
        return self.reply()

    def send(self, words: bytes) -> None:
        self._socket.sendall(words)

    def reply(self) -> Reply:
        while not self._found:
            data = self._socket.recv(1 << 16)
            assert data, "it closed the connection"
            self._found += self._replies.feed(data)
        return self._found.pop(0)

    def close(self) -> None:
        self._socket.close()
