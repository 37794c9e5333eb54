"""What `kilocard render ray` writes for KubeRay, held against Kubernetes' strict schemas and KubeRay's own fields."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator, ValidationError
from kubernetes_tools import read, validate
from tests.golden_cases import GOLDEN, GOLDEN_OF

TEXTS = {"type": "object", "additionalProperties": {"type": "string"}}
COUNT = {"type": "integer", "minimum": 0}


def fields(required: str, **properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "additionalProperties": False,
        "required": required.split(),
        "properties": properties,
    }


#: ray-operator/apis/ray/v1/raycluster_types.go of ray-project/kuberay (1.5): those that we write, and their types
CLUSTER = fields(
    "headGroupSpec",
    rayVersion={"type": "string"},
    enableInTreeAutoscaling={"type": "boolean"},
    autoscalerOptions=fields("", version={"enum": ["v1", "v2"]}, idleTimeoutSeconds=COUNT),
    gcsFaultToleranceOptions=fields("redisAddress", redisAddress={"type": "string"}),
    headGroupSpec=fields("template", rayStartParams=TEXTS, labels=TEXTS, template={"type": "object"}),
    workerGroupSpecs={
        "type": "array",
        "items": fields(
            "groupName minReplicas maxReplicas template",
            groupName={"type": "string", "pattern": "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"},
            replicas=COUNT,
            minReplicas=COUNT,
            maxReplicas=COUNT,
            labels=TEXTS,
            rayStartParams={**TEXTS, "not": {"required": ["labels"]}},  # the operator refuses labels there
            template={"type": "object"},
        ),
    },
)
SERVICE = fields("rayClusterConfig", serveConfigV2={"type": "string"}, rayClusterConfig=CLUSTER)
SCHEMAS = {"RayCluster": CLUSTER, "RayService": SERVICE}


def plain(thing: dict[str, Any]) -> list[dict[str, Any]]:
    """An object of Kubernetes' own as it is; of KubeRay's the pod templates, once what is around them fits."""
    if thing["kind"] not in SCHEMAS:
        return [thing]
    spec = thing["spec"]
    Draft202012Validator(SCHEMAS[thing["kind"]]).validate(spec)
    cluster = spec.get("rayClusterConfig", spec)
    groups = [cluster["headGroupSpec"], *cluster["workerGroupSpecs"]]
    return [
        {
            "apiVersion": "v1",
            "kind": "PodTemplate",
            "metadata": {"name": f"group-{number}"},
            "template": group["template"],
        }
        for number, group in enumerate(groups)
    ]


def written(cluster: str, file: str) -> list[dict[str, Any]]:
    return read((GOLDEN / "ray" / cluster / "kuberay" / file).read_text())


@pytest.mark.parametrize("file", ["raycluster.yaml", "rayservice.yaml", "gateway.yaml"])
@pytest.mark.parametrize("cluster", GOLDEN_OF["ray"])
def test_every_object_fits_its_schema(cluster: str, file: str, tmp_path: Path) -> None:
    validate([one for thing in written(cluster, file) for one in plain(thing)], tmp_path)


def test_the_schemas_are_strict(tmp_path: Path) -> None:
    things = written("fleet", "raycluster.yaml")
    [cluster] = [thing for thing in things if thing["kind"] == "RayCluster"]
    for change in (
        lambda spec: spec["workerGroupSpecs"][0]["rayStartParams"].update({"num-gpus": 2}),
        lambda spec: spec["workerGroupSpecs"][0].update(maxReplica=1),
        lambda spec: spec["workerGroupSpecs"][0]["rayStartParams"].update({"labels": "a=b"}),
    ):
        broken = copy.deepcopy(cluster)
        change(broken["spec"])
        with pytest.raises(ValidationError):
            plain(broken)
    broken = copy.deepcopy(cluster)
    broken["spec"]["workerGroupSpecs"][0]["template"]["spec"]["containers"][0]["livenessprobe"] = {}
    with pytest.raises(AssertionError):
        validate(plain(broken), tmp_path)
