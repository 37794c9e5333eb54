"""The rendered scripts, run: do two machines become one Ray cluster?"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from free_ports import free_port
from kilocard.deploy.ray.render import render
from kilocard.deploy.target import RenderOptions
from kilocard.spec.parse import parse

GOLDEN = Path(__file__).parent.parent / "golden" / "ray"
NODES = """
import json, ray, sys
ray.init(address=sys.argv[1], _node_ip_address="127.0.0.1", configure_logging=False, log_to_driver=False)
print(json.dumps([{"address": node["NodeManagerAddress"], "gpus": node["Resources"].get("GPU", 0),
                   "labels": node["Labels"]} for node in ray.nodes() if node["Alive"]]))
"""


def test_rendered_scripts_make_one_cluster(ray_is_here: None, tmp_path: Path) -> None:
    port = free_port()
    pool = {
        "engine": "vllm",
        "version": "0.32.0",
        "model": "org/m",
        "gpus": {"tensor": 2, "per_node": 2},
        "replicas": 2,
        "placement": {"node_selector": {"gpu-type": "A100"}},
    }
    files = render(
        parse(
            {
                "gateway": {"allow_open": True},
                "pools": {"chat": pool},
                "ray": {"port": port, "object_store": 80 * 2**20},
            }
        ),
        RenderOptions("1.2.3"),
    )
    # short ones: paths of Unix sockets must be
    folders = {name: tempfile.mkdtemp(prefix="ray-", dir="/tmp") for name in ("head", "worker-2-gpus-A100")}
    running = []
    try:
        for name, address in (("head", "127.0.0.1"), ("worker-2-gpus-A100", "127.0.0.2")):
            script = tmp_path / f"{name}.sh"
            script.write_text(files[f"machines/{name}.sh"])
            env = {
                **os.environ,
                "NODE_IP": address,
                "HEAD": "127.0.0.1",
                "NUM_CPUS": "1",
                "RAY_TMPDIR": folders[name],
            }
            with (tmp_path / f"{name}.log").open("wb") as log:
                running.append(subprocess.Popen(["sh", str(script)], env=env, stdout=log, stderr=log))
            if name == "head":
                until_started(tmp_path / "head.log")
        found = two_nodes(f"127.0.0.1:{port}", tmp_path)
        assert sorted(node["address"] for node in found) == ["127.0.0.1", "127.0.0.2"]
        assert [node["gpus"] for node in found] == [2, 2]
        assert {node["labels"]["gpu-type"] for node in found} == {"A100"}
    finally:
        for process in reversed(running):
            process.send_signal(signal.SIGTERM)
        for process in running:
            process.wait(30)
        for folder in folders.values():
            shutil.rmtree(folder, ignore_errors=True)


def until_started(log: Path) -> None:
    end = time.monotonic() + 120
    while "Ray runtime started" not in log.read_text():
        assert time.monotonic() < end, log.read_text()
        time.sleep(0.2)


def two_nodes(address: str, folder: Path) -> list[dict[str, Any]]:
    end = time.monotonic() + 120
    while True:
        done = subprocess.run([sys.executable, "-c", NODES, address], capture_output=True, text=True)
        if done.returncode == 0 and len(found := json.loads(done.stdout)) == 2:
            return list(found)
        said = [(folder / f"{name}.log").read_text() for name in ("head", "worker-2-gpus-A100")]
        assert time.monotonic() < end, (done, said)
        time.sleep(1)


@pytest.mark.filterwarnings("ignore")  # of Ray and pydantic among themselves
@pytest.mark.parametrize("cluster", ["one-model", "fleet"])
def test_ray_serve_reads_the_ray_services_application(ray_is_here: None, cluster: str) -> None:
    """With its own classes, which refuse fields that they don't know."""
    from ray.serve.schema import ServeDeploySchema

    from ray.llm._internal.serve.core.configs.llm_config import LLMConfig  # isort: skip  # ray.serve.llm wants vLLM

    file = GOLDEN / cluster / "kuberay/rayservice.yaml"
    [service] = yaml.safe_load_all(file.read_text())
    config = yaml.safe_load(service["spec"]["serveConfigV2"])
    ServeDeploySchema.model_validate(config)
    models = [LLMConfig(**one) for one in config["applications"][0]["args"]["llm_configs"]]
    assert models and all(model.model_loading_config.model_source for model in models)
