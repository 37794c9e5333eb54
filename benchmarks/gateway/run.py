"""One proxy, one round: start the stub and the proxy, check that bytes pass, load, read the processor time, stop."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.gateway import closed_loop
from benchmarks.gateway.children import Child, answers, free_port
from benchmarks.gateway.cpu import cpu_seconds, peak_rss_mib
from benchmarks.gateway.pages import event, request_body
from benchmarks.gateway.proxies.base import KEY, Proxy
from benchmarks.gateway.proxies.direct import Direct

ROOT = Path(__file__).resolve().parents[2]
AUTHORIZATION = f"Bearer {KEY}"


@dataclass(frozen=True)
class Load:
    """How much of it: connections and streams at once, seconds of each window."""

    connections: int = 64
    streams: int = 200
    warm: float = 2.0
    seconds: float = 8.0
    stream_seconds: float = 10.0
    phases: int = 5
    own_client: bool = False


def one(kind: type[Proxy], load: Load, cores: tuple[int | None, int | None], cache: Path) -> dict[str, Any]:
    """The round's numbers: `requests`, `streams`, `errors` and what they were. Raises ChildError, Unavailable."""
    proxy_core, load_core = cores
    upstreams = [free_port(), free_port()]
    with tempfile.TemporaryDirectory(prefix="kilocard-bench-") as name:
        folder = Path(name)
        stub_argv = [
            sys.executable,
            "-m",
            "benchmarks.gateway.stub",
            *map(str, upstreams),
            "--phases",
            str(load.phases),
        ]
        with Child(stub_argv, core=load_core, log=folder / "stub.log", cwd=ROOT) as stub:
            for port in upstreams:
                stub.wait_until(partial(answers, f"http://127.0.0.1:{port}/health"), 10)
            if kind is Direct:
                return _loaded(upstreams[0], 0, load, load_core, folder, upstreams)
            proxy = kind(folder, free_port(), upstreams, cache)
            proxy.prepare()
            with Child(proxy.argv(), core=proxy_core, log=folder / "proxy.log", env=proxy.env()) as child:
                headers = {"Authorization": AUTHORIZATION}
                child.wait_until(lambda: answers(proxy.ready_url(), headers), proxy.start_timeout)
                return _loaded(proxy.port, child.pid, load, load_core, folder, upstreams)


def _loaded(port: int, pid: int, load: Load, core: int | None, folder: Path, upstreams: list[int]) -> dict[str, Any]:
    problems = check(port)
    requests = _requests(port, pid, load, core, folder)
    streams = _streams(port, pid, load, core)
    for phase, counts in (("requests", requests), ("streams", streams)):
        for kind in ("errors", "bad_status", "unfinished", "wrong_count"):
            if counts.get(kind):
                problems.append(f"{phase}: {counts[kind]} {kind.replace('_', ' ')}")
    stats = []
    for upstream in upstreams:
        with urllib.request.urlopen(f"http://127.0.0.1:{upstream}/stub", timeout=5) as r:
            stats.append(json.load(r))
    return {
        "requests": requests,
        "streams": streams,
        "upstreams": stats,
        "peak_rss_mib": peak_rss_mib(pid) if pid else None,
        "problems": problems,
    }


def check(port: int) -> list[str]:
    """Say what is wrong with the bytes that come through: one answer and one stream of 20 events."""
    url, problems = f"http://127.0.0.1:{port}/v1/chat/completions", []
    headers = {"Content-Type": "application/json", "Authorization": AUTHORIZATION}
    for stream in (False, True):
        body = request_body(stream=stream, tokens=20)
        try:
            with urllib.request.urlopen(urllib.request.Request(url, body, headers), timeout=20) as r:
                got = r.read()
        except OSError as e:
            problems.append(f"check: {'stream' if stream else 'request'} failed: {e}")
            continue
        if not stream and json.loads(got).get("object") != "chat.completion":
            problems.append(f"check: unexpected answer {got[:80]!r}")
        if stream:
            events = got.split(b"\n\n")
            before, after = event()
            same = sum(e.startswith(before) and e.endswith(after.rstrip()) for e in events)
            if same != 20 or events[-2:] != [b"data: [DONE]", b""] or len(events) != 22:
                problems.append(f"check: {same} of 20 events unchanged, {len(events) - 22} too many, end {got[-40:]!r}")
    return problems


def _pinned(argv: list[str], core: int | None) -> list[str]:
    return argv if core is None else ["taskset", "-c", str(core), *argv]


def _requests(port: int, pid: int, load: Load, core: int | None, folder: Path) -> dict[str, Any]:
    body = folder / "body.json"
    body.write_bytes(request_body(stream=False, tokens=40))

    def client(seconds: float) -> list[str]:
        if load.own_client:
            argv = closed_loop.own_argv(sys.executable, port, load.connections, seconds, AUTHORIZATION)
        else:
            argv = closed_loop.wrk_argv(port, load.connections, seconds, body, AUTHORIZATION)
        return _pinned(argv, core)

    closed_loop.run(client(max(1.0, load.warm / 2)), load.seconds)
    before = cpu_seconds(pid) if pid else 0.0
    counts = closed_loop.run(client(load.seconds), load.seconds)
    counts["cpu_s"] = (cpu_seconds(pid) if pid else 0.0) - before
    return _per(counts, "requests", bool(pid))


def _streams(port: int, pid: int, load: Load, core: int | None) -> dict[str, Any]:
    argv = [
        *(sys.executable, "-m", "benchmarks.gateway.streams", str(port), "--streams", str(load.streams)),
        *("--warm", str(load.warm), "--seconds", str(load.stream_seconds)),
        *("--authorization", AUTHORIZATION, "--proxy", str(pid)),
    ]
    limit = 6 * (load.warm + load.stream_seconds) + 60
    done = subprocess.run(_pinned(argv, core), capture_output=True, text=True, timeout=limit, check=False, cwd=ROOT)
    line = next((text[5:] for text in done.stdout.splitlines() if text.startswith("JSON ")), None)
    if line is None:
        return {"errors": 1, "chunks": 0, "per_second": 0.0, "cpu_us": None, "why": done.stderr[-800:]}
    return _per(json.loads(line), "chunks", bool(pid))


def _per(counts: Mapping[str, Any], unit: str, measured: bool) -> dict[str, Any]:
    number = max(1, counts[unit])
    return {
        **counts,
        "per_second": counts[unit] / counts["seconds"],
        "cpu_us": counts["cpu_s"] / number * 1e6 if measured else None,
        "cpu_share": counts["cpu_s"] / counts["seconds"] if measured else None,
    }
