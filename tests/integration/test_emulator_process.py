"""The emulator as a process: addresses on stderr, a graceful end, errors with an exit code."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request

ARGV = [sys.executable, "-m", "kilocard.emulator"]


def running(url: str) -> bool:
    with urllib.request.urlopen(f"{url.removesuffix('/v1')}/admin/stats", timeout=60) as answer:
        return bool(json.load(answer)["running"])


def test_it_prints_addresses_and_ends_gracefully_on_sigterm() -> None:
    argv = [*ARGV, "--port", "0", "--count", "2", "--model", "a", "--model", "b"]
    with subprocess.Popen(argv, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            assert "not a real model: serves a, b" in process.stderr.readline()
            first, second = (process.stderr.readline().strip() for _ in range(2))
            assert first != second
            answers: list[dict[str, object]] = []

            def ask() -> None:
                data = json.dumps({"model": "b", "prompt": "x", "max_tokens": 300}).encode()
                with urllib.request.urlopen(f"{second}/completions", data, timeout=60) as response:
                    answers.append(json.load(response))

            asking = threading.Thread(target=ask)
            asking.start()
            while not running(second):
                time.sleep(0.01)
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0
            asking.join()
            assert answers[0]["model"] == "b"
        finally:
            process.kill()


def test_a_port_in_use_is_told_and_not_half_used() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = subprocess.run([*ARGV, "--port", str(port)], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert f"can't listen on 127.0.0.1:{port}" in done.stderr
    assert "Traceback" not in done.stderr


def test_settings_without_sense_are_usage_errors() -> None:
    done = subprocess.run([*ARGV, "--speed", "0"], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert "speed" in done.stderr
