"""What no schema knows: objects name each other, and each name leads to something."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from clusters import Object
from tests.golden_cases import CLUSTERS, GOLDEN

from kilocard.deploy.kubernetes.render import objects
from kilocard.deploy.target import RenderOptions
from kilocard.spec.load import load

FILES = [
    *sorted(CLUSTERS.glob("*.yaml")),
    GOLDEN.parent.parent / "examples" / "kubernetes.yaml",
    *sorted((GOLDEN.parent / "deploy" / "clusters").glob("*.yaml")),
]
#: Secrets that people make, as docs/deploy-kubernetes.md says
SECRETS = {"kilocard-hub", "kilocard-gateway", "kilocard-tls", "kilocard-keys"}
DNS_NAME = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*")
LABEL = re.compile(r"([A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)?")


@pytest.fixture(params=FILES, ids=lambda path: path.stem)
def things(request: pytest.FixtureRequest) -> list[Object]:
    return [thing for each in objects(load(request.param), RenderOptions()).values() for thing in each]


def templates(things: list[Object]) -> Iterator[tuple[Object, Object]]:
    """Each pod template with the object that makes pods of it."""
    for thing in things:
        if thing["kind"] == "Deployment":
            yield thing, thing["spec"]["template"]
        elif thing["kind"] == "LeaderWorkerSet":
            for role in ("leaderTemplate", "workerTemplate"):
                yield thing, thing["spec"]["leaderWorkerTemplate"][role]


def picks(selector: Object, labels: Object) -> bool:
    wanted = {key: value for key, value in selector.items() if "leaderworkerset" not in key}
    return wanted.items() <= labels.items()


def names(things: list[Object], kind: str) -> set[str]:
    return {thing["metadata"]["name"] for thing in things if thing["kind"] == kind}


def test_no_two_objects_are_one(things: list[Object]) -> None:
    found = [(thing["kind"], thing["metadata"]["name"]) for thing in things]
    assert len(found) == len(set(found))


def test_a_deployment_selects_its_own_pods_and_no_others(things: list[Object]) -> None:
    for thing, template in templates(things):
        if thing["kind"] == "Deployment":
            selector = thing["spec"]["selector"]["matchLabels"]
            owners = [one for one, other in templates(things) if picks(selector, other["metadata"]["labels"])]
            assert owners == [thing] and picks(selector, template["metadata"]["labels"])


@pytest.mark.parametrize("kind", ["Service", "PodDisruptionBudget", "NetworkPolicy"])
def test_what_selects_pods_selects_those_of_one_object(things: list[Object], kind: str) -> None:
    found = [thing for thing in things if thing["kind"] == kind]
    assert found
    for thing in found:
        spec = thing["spec"]
        selector = spec["podSelector"] if kind == "NetworkPolicy" else spec["selector"]
        selector = selector.get("matchLabels", selector)
        owners = {
            one["metadata"]["name"] for one, pod in templates(things) if picks(selector, pod["metadata"]["labels"])
        }
        assert len(owners) == 1, thing["metadata"]["name"]


def test_each_pool_has_a_service_and_a_policy_and_a_budget(things: list[Object]) -> None:
    for _, template in templates(things):
        labels = template["metadata"]["labels"]
        if labels["app.kubernetes.io/component"] == "engine":
            for kind in ("Service", "NetworkPolicy", "PodDisruptionBudget"):
                assert [
                    thing
                    for thing in things
                    if thing["kind"] == kind
                    and thing["metadata"]["labels"].get("kilocard/pool") == labels["kilocard/pool"]
                ]


def test_mounts_and_volumes_belong_together(things: list[Object]) -> None:
    for _, template in templates(things):
        body = template["spec"]
        volumes = [each["name"] for each in body["volumes"]]
        mounts = [each["name"] for each in body["containers"][0]["volumeMounts"]]
        assert sorted(volumes) == sorted(mounts) and len(set(volumes)) == len(volumes)


def test_what_pods_refer_to_is_there(things: list[Object]) -> None:
    for _, template in templates(things):
        body, container = template["spec"], template["spec"]["containers"][0]
        if "serviceAccountName" in body:
            assert body["serviceAccountName"] in names(things, "ServiceAccount")
        for volume in body["volumes"]:
            if "configMap" in volume:
                assert volume["configMap"]["name"] in names(things, "ConfigMap")
            if "persistentVolumeClaim" in volume:
                assert volume["persistentVolumeClaim"]["claimName"] in names(things, "PersistentVolumeClaim")
            if "secret" in volume:
                assert volume["secret"]["secretName"] in SECRETS
        for each in container.get("env", []):
            assert re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", each["name"])
            reference = each.get("valueFrom", {}).get("secretKeyRef")
            if reference is not None:
                assert reference["name"] in SECRETS | names(things, "Deployment") | names(things, "Service")
        ports = {each["name"] for each in container.get("ports", [])}
        for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
            assert probe not in container or container[probe]["httpGet"]["port"] in ports


def test_rights_and_autoscaler_lead_to_what_is_there(things: list[Object]) -> None:
    for thing in things:
        if thing["kind"] == "RoleBinding":
            assert thing["roleRef"]["name"] in names(things, "Role")
            assert {each["name"] for each in thing["subjects"]} <= names(things, "ServiceAccount")
        if thing["kind"] == "HorizontalPodAutoscaler":
            assert thing["spec"]["scaleTargetRef"]["name"] in names(things, "Deployment")
        if thing["kind"] == "Role":
            for rule in thing["rules"]:
                known = names(things, "Deployment") | names(things, "LeaderWorkerSet") | {thing["metadata"]["name"]}
                assert set(rule.get("resourceNames", [])) <= known


def test_names_and_labels_are_what_kubernetes_takes(things: list[Object]) -> None:
    def labels_of(value: Any) -> Iterator[Object]:
        if isinstance(value, dict):
            for key, item in value.items():
                if key in {"labels", "matchLabels", "nodeSelector"}:
                    yield item
                yield from labels_of(item)
        elif isinstance(value, list):
            for item in value:
                yield from labels_of(item)

    for thing in things:
        assert DNS_NAME.fullmatch(thing["metadata"]["name"]) and len(thing["metadata"]["name"]) <= 63
        for labels in labels_of(thing):
            for key, value in labels.items():
                prefix, _, name = key.rpartition("/")
                assert (not prefix or DNS_NAME.fullmatch(prefix)) and LABEL.fullmatch(name) and LABEL.fullmatch(value)
