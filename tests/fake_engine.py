"""An engine for tests: a real process that answers like an inference server, and misbehaves when told to.

Run as a script it is the server (standard library, one thread, starts in some 20 ms); imported it gives `FakeEngine`,
which launches it. Pool arguments become its flags.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

SLEEPER = [sys.executable, "-I", "-S", "-c", "import time; time.sleep(600)"]


def serve(flags: dict[str, str]) -> None:
    print("engine: hello", flush=True)
    if "rank" in flags:  # one of several parts: files of its own
        flags |= {key: f"{flags[key]}-{flags['rank']}" for key in ("family", "env") if key in flags}
    if "starts" in flags:  # count the starts in a file
        with open(flags["starts"], "a") as file:
            file.write("x")
    if "deaf" in flags:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if "family" in flags:  # one child in our group, one that left it (as some engines' workers do)
        pids = [subprocess.Popen(SLEEPER).pid, subprocess.Popen(SLEEPER, start_new_session=True).pid]
        with open(flags["family"], "w") as file:
            json.dump([os.getpid(), *pids], file)
    if "env" in flags:
        with open(flags["env"], "w") as file:
            json.dump(dict(os.environ), file)
    if "dies" in flags:
        print("RuntimeError: the weights are broken", file=sys.stderr, flush=True)
        sys.exit(int(flags["dies"]))
    listener = socket.create_server((flags["host"], int(flags["port"])))
    loaded_at = time.monotonic() + float(flags.get("load", "0"))
    killed_at = time.monotonic() + float(flags.get("killed-after", "1e9"))
    listed_at = time.monotonic() + float(flags.get("listed-after", "0"))
    if "load" in flags:
        print("engine: loading weights", flush=True)
    listener.settimeout(0.05)
    while True:
        if time.monotonic() > killed_at:
            os.kill(os.getpid(), signal.SIGKILL)
        try:
            client, _ = listener.accept()
        except TimeoutError:
            continue
        with client:
            client.settimeout(2)
            path = client.recv(65536).split(b" ")[1].decode()
            now = time.monotonic()
            if now < loaded_at or os.path.exists(flags.get("unready", "/nonexistent")):
                status, page = "503 Service Unavailable", {"error": {"message": "Loading model"}}
            elif path == "/v1/models":
                names = flags["names"].split(",") if now >= listed_at else ["another"]
                status, page = "200 OK", {"data": [{"id": name} for name in names]}
            else:
                status, page = "200 OK", {}
            body = json.dumps(page).encode()
            client.sendall(b"HTTP/1.1 %s\r\ncontent-length: %d\r\n\r\n" % (status.encode(), len(body)) + body)


if __name__ != "__main__":
    # the server itself starts without kilocard, which takes time to import
    from kilocard.core.errors import EngineError
    from kilocard.engines.base import Capabilities, Launch, MetricsPage, Placement
    from kilocard.spec.model import ClusterSpec, DrainSpec, GpuSpec, ModelSpec, PoolSpec, ReplicaRange, StartSpec

    CAPABILITIES = Capabilities(
        aborts_on_disconnect=True,
        stream_usage=True,
        prefix_cache=False,
        shutdown_flag=None,
        keep_alive=None,
        needs_gpu=False,
        launchable=True,
        lists_models=True,
    )
    QUICK = StartSpec(backoff=0.05, backoff_max=0.2, crash_loop=3)

    @dataclass
    class FakeEngine:
        """`program`: what to run in place of the server."""

        name: str = "fake"
        program: tuple[str, ...] = (sys.executable, "-I", "-S", __file__)
        capabilities: Capabilities = CAPABILITIES
        launched: list[Placement] = field(default_factory=list)

        def launch(self, pool: PoolSpec, place: Placement, served_names: tuple[str, ...]) -> Launch:
            if pool.args.get("impossible"):
                raise EngineError(f"pool {pool.name}: args.impossible can't be had")
            self.launched.append(place)
            flags = {"host": place.host, "port": place.port, "names": ",".join(served_names), **pool.args}
            return Launch((*self.program, *(f"--{key}={value}" for key, value in flags.items())), pool.env)

        def upstream_model(self, pool: PoolSpec, public_name: str) -> str:
            return public_name

        def liveness_path(self, pool: PoolSpec) -> str:
            return "/health"

        def readiness_path(self, pool: PoolSpec) -> str:
            return "/health"

        def loading_hint(self, line: str) -> str | None:
            return "reading the weights" if "loading weights" in line else None

        def metrics_pages(self, pool: PoolSpec) -> tuple[MetricsPage, ...]:
            return ()

        def max_running(self, pool: PoolSpec) -> int | None:
            return None

        def gpu_count(self, pool: PoolSpec) -> int:
            return 0 if pool.gpus is None else pool.gpus.per_replica

    def one_pool(
        *,
        replicas: int = 1,
        gpus: GpuSpec | None = None,
        grace: float = 60.0,
        start: StartSpec = QUICK,
        endpoints: tuple[str, ...] = (),
        **args: str | float,
    ) -> ClusterSpec:
        """A cluster of the model `m` on the pool `p`; `args` are flags of the server above ("_" for "-")."""
        pool = PoolSpec(
            name="p",
            engine="fake",
            args={key.replace("_", "-"): value for key, value in args.items()},
            replicas=ReplicaRange(replicas, 8),
            gpus=gpus,
            drain=DrainSpec(grace),
            start=start,
            endpoints=endpoints,
        )
        return ClusterSpec(models={"m": ModelSpec("m", {"p": 1})}, pools={"p": pool})

    def is_alive(pid: int) -> bool:
        """A process that runs (one that has exited and waits to be collected does not)."""
        try:
            os.kill(pid, 0)
            stat = Path(f"/proc/{pid}/stat")
            return not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] != "Z"
        except (ProcessLookupError, FileNotFoundError):
            return False


if __name__ == "__main__":
    serve(dict(argument.removeprefix("--").split("=", 1) for argument in sys.argv[1:]))
