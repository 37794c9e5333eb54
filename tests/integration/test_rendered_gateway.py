"""The cluster file that `kilocard render kubernetes` puts into the ConfigMap, read by a real gateway, which finds its
replicas as in a cluster: by the EndpointSlices of the rendered Service."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

import yaml
from kubernetes_stub import KubernetesStub

from free_ports import free_port
from kilocard.deploy.kubernetes.render import objects
from kilocard.deploy.target import RenderOptions
from kilocard.emulator.fleet import running_emulators
from kilocard.emulator.settings import Settings
from kilocard.spec.parse import parse

SPEC = {
    "gateway": {"allow_open": True},
    "models": {"chat": {"pools": {"chat-v1": 1}}},
    "pools": {"chat-v1": {"engine": "vllm", "version": "0.32.0", "model": "org/chat"}},
}
TERMINATING = {"ready": False, "serving": True, "terminating": True}


async def ask(port: int, method: str, path: str, body: object = None) -> tuple[int, bytes]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    raw = b"" if body is None else json.dumps(body).encode()
    head = f"{method} {path} HTTP/1.1\r\nHost: gateway\r\nConnection: close\r\nContent-Length: {len(raw)}\r\n\r\n"
    writer.write(head.encode() + raw)
    answer = await reader.read()
    writer.close()
    top, _, content = answer.partition(b"\r\n\r\n")
    return int(top.split()[1]), content


async def state(admin: int) -> dict[str, Any]:
    return {each["id"]: each for each in json.loads((await ask(admin, "GET", "/state"))[1])["replicas"]}


def test_the_rendered_cluster_file_serves(tmp_path: Path) -> None:
    things = [thing for each in objects(parse(SPEC), RenderOptions()).values() for thing in each]
    (config,) = [thing for thing in things if thing["kind"] == "ConfigMap"]
    (service,) = [t["metadata"]["name"] for t in things if t["kind"] == "Service" and "chat" in t["metadata"]["name"]]
    file = tmp_path / "cluster.yaml"
    # the test's own address in place of the pod's
    file.write_text(config["data"]["cluster.yaml"].replace("0.0.0.0", "127.0.0.1"))
    port, admin = free_port(), free_port()

    async def until(true: Any, what: str) -> None:
        for _ in range(1200):
            if await true():
                return
            await asyncio.sleep(0.05)
        raise AssertionError(what + " never came: " + (tmp_path / "log").read_text())

    async def main() -> None:
        stub = KubernetesStub(namespace="default", service=service)
        async with running_emulators(2, Settings(models=("chat",), speed=100)) as (first, second):
            stub.put("slice-1", first, w1={"ready": True})
            await stub.start()
            with (tmp_path / "log").open("wb") as log:
                process = await asyncio.create_subprocess_exec(
                    sys.executable, "-m", "kilocard", "gateway", str(file), "--port", str(port), "--admin-port",
                    str(admin), stdout=log, stderr=log,
                    env={**os.environ, "KILOCARD_HOME": str(tmp_path), "KILOCARD_KUBERNETES_API": stub.url},
                )  # fmt: skip
            try:

                async def up() -> bool:
                    try:
                        return (await ask(admin, "GET", "/readyz"))[0] == 200
                    except OSError:
                        return False

                await until(up, "readiness")
                body = {"model": "chat", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 3}
                status, answer = await ask(port, "POST", "/v1/chat/completions", body)
                assert status == 200 and json.loads(answer)["choices"], answer
                assert set(await state(admin)) == {"chat-v1/w1"}
                stub.put("slice-2", second, w2={"ready": True})
                stub.put("slice-1", first, w1=TERMINATING)

                async def moved() -> bool:
                    found = await state(admin)
                    return found.get("chat-v1/w2", {}).get("state") == "ready" and (
                        found.get("chat-v1/w1", {}).get("state") != "ready"
                    )

                await until(moved, "the move to w2")
                status, answer = await ask(port, "POST", "/v1/chat/completions", body)
                assert status == 200, answer
            finally:
                process.terminate()
                await process.wait()
                await stub.stop()
        assert yaml.safe_load(file.read_text())["pools"]["chat-v1"]["service"] == service

    asyncio.run(main())
