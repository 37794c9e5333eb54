"""kubectl, Helm and Kubernetes' schemas, as scripts/test-deploy brings them."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import yaml
from jsonschema import Draft202012Validator
from tests.parts import part_missing

VERSION = "1.37"
#: libyaml's where it is there: ten times as fast
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
GROUP = "LeaderWorkerSet"
#: api/leaderworkerset/v1/leaderworkerset_types.go of kubernetes-sigs/lws: what is outside the pod templates
_GROUP_SCHEMA = {
    "type": "object",
    "additionalProperties": False,
    "required": ["leaderWorkerTemplate"],
    "properties": {
        "replicas": {"type": "integer", "minimum": 0},
        "startupPolicy": {"enum": ["LeaderCreated", "LeaderReady"]},
        "rolloutStrategy": {
            "type": "object",
            "additionalProperties": False,
            "required": ["type"],
            "properties": {
                "type": {"const": "RollingUpdate"},
                "rollingUpdateConfiguration": {
                    "type": "object",
                    "additionalProperties": False,
                    "properties": {
                        "partition": {"type": "integer"},
                        "maxUnavailable": {"type": ["integer", "string"]},
                        "maxSurge": {"type": ["integer", "string"]},
                    },
                },
            },
        },
        "networkConfig": {"type": "object"},
        "leaderWorkerTemplate": {
            "type": "object",
            "additionalProperties": False,
            "required": ["workerTemplate"],
            "properties": {
                "size": {"type": "integer", "minimum": 1},
                "restartPolicy": {"enum": ["Default", "RecreateGroupOnPodRestart", "RecreateGroupAfterStart", "None"]},
                "leaderTemplate": {"type": "object"},
                "workerTemplate": {"type": "object"},
            },
        },
    },
}
#: PodMonitor of the Prometheus operator's monitoring.coreos.com/v1, as far as it is used here
_MONITOR_SCHEMA = {
    "type": "object",
    "additionalProperties": False,
    "required": ["selector", "podMetricsEndpoints"],
    "properties": {
        "selector": {
            "type": "object",
            "additionalProperties": False,
            "properties": {"matchLabels": {"type": "object", "additionalProperties": {"type": "string"}}},
        },
        "podMetricsEndpoints": {
            "type": "array",
            "items": {
                "type": "object",
                "additionalProperties": False,
                "properties": {"port": {"type": "string"}, "path": {"type": "string"}},
            },
        },
    },
}


def tool(name: str) -> str:
    home = os.environ.get("KILOCARD_DEPLOY_TOOLS")
    path = Path(home or "/nowhere") / name
    if not path.exists():
        part_missing(f"no {name}: run scripts/test-deploy, which brings it")
    return str(path)


def run(name: str, *arguments: str | Path) -> str:
    """stdout; an AssertionError with what the program said where it fails."""
    done = subprocess.run([tool(name), *map(str, arguments)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, f"{name} {' '.join(map(str, arguments))}\n{done.stdout}{done.stderr}"
    return done.stdout


def read(text: str) -> list[dict[str, Any]]:
    return [thing for thing in yaml.load_all(text, LOADER) if thing]


def validate(things: list[dict[str, Any]], scratch: Path) -> None:
    """Every object against the strict schema of its kind; AssertionError for what does not fit or is not known."""
    known = []
    for thing in things:
        if thing["kind"] == "PodMonitor":
            Draft202012Validator(_MONITOR_SCHEMA).validate(thing["spec"])
            continue
        if thing["kind"] != GROUP:
            known.append(thing)
            continue
        spec = thing["spec"]
        Draft202012Validator(_GROUP_SCHEMA).validate(spec)
        known += [
            {
                "apiVersion": "v1",
                "kind": "PodTemplate",
                "metadata": {"name": f"{thing['metadata']['name']}-{role}"},
                "template": spec["leaderWorkerTemplate"][role],
            }
            for role in ("leaderTemplate", "workerTemplate")
        ]
    file = scratch / "things.yaml"
    file.write_text("\n---\n".join(json.dumps(thing) for thing in known))
    done = subprocess.run(
        [tool("venv/bin/kubernetes-validate"), "--strict", "-k", VERSION, str(file)],
        capture_output=True,
        text=True,
        timeout=300,
    )
    said = done.stdout + done.stderr
    assert done.returncode == 0 and "ERROR" not in said and "WARN" not in said, said
    assert said.count(" passed for resource ") == len(known), said
