"""The gateway in Kubernetes: its file, its secrets, its end."""

from __future__ import annotations

import json

import pytest
import yaml
from clusters import cluster, everything, rendered
from tests.golden_cases import CLUSTERS

from kilocard.core.errors import UsageError
from kilocard.deploy.target import RenderOptions
from kilocard.deploy.targets import target
from kilocard.spec.load import load
from kilocard.spec.model import ClusterSpec
from kilocard.spec.parse import parse
from kilocard.spec.yaml_document import read_document


def file_of(spec: ClusterSpec) -> str:
    text: str = rendered(spec, "ConfigMap", "kilocard-gateway")["data"]["cluster.yaml"]
    return text


def read_back(spec: ClusterSpec, **env: str) -> ClusterSpec:
    """As the gateway in the pod reads it."""
    document = read_document(file_of(spec), env=env)
    assert not document.found
    return parse(document.value, texts=document.texts)


def gateway(spec: ClusterSpec) -> dict[str, object]:
    found: dict[str, object] = rendered(spec, "Deployment", "kilocard-gateway")["spec"]["template"]["spec"]
    return found


def test_the_gateway_finds_replicas_by_their_services() -> None:
    spec = cluster(
        "a: {engine: vllm, version: 0.32.0, model: m/m, args: {max-num-seqs: 7}}\n"
        "b: {engine: external, endpoints: ['http://h:1']}"
    )
    read = read_back(spec)
    assert read.pools["a"].service == rendered(spec, "Service")["metadata"]["name"]
    assert read.pools["a"].args == {"max-num-seqs": 7}
    assert read.pools["b"] == spec.pools["b"]
    assert read.models == spec.models
    assert (read.gateway.listen, read.gateway.admin) == ("0.0.0.0:8000", "0.0.0.0:8001")


def test_the_gateway_may_read_where_replicas_are_and_nothing_else() -> None:
    (rule,) = rendered(cluster(), "Role", "kilocard-gateway")["rules"]
    assert rule == {
        "apiGroups": ["discovery.k8s.io"],
        "resources": ["endpointslices"],
        "verbs": ["get", "list", "watch"],
    }


def test_passwords_stand_in_no_manifest_and_reach_the_gateway_by_its_environment() -> None:
    spec = parse(
        {
            "gateway": {
                "allow_open": True,
                "limit_store": "redis://:pw1@r:1/0",
                "usage": {"database": "postgresql://u:pw2@d/x"},
            },
            "pools": {"a": {"engine": "vllm", "version": "0.32.0", "model": "m/m", "env": {"HF_TOKEN": "pw3"}}},
        }
    )
    assert "pw" not in json.dumps(everything(spec))
    secrets = {
        each["name"]: each["valueFrom"]["secretKeyRef"]
        for each in gateway(spec)["containers"][0]["env"]  # type: ignore[index]  # plain data
        if "valueFrom" in each
    }
    assert secrets == {
        "KILOCARD_LIMIT_STORE": {"name": "kilocard-gateway", "key": "limit-store"},
        "KILOCARD_USAGE_DATABASE": {"name": "kilocard-gateway", "key": "usage-database"},
    }
    read = read_back(spec, KILOCARD_LIMIT_STORE="redis://:pw1@r:1/0", KILOCARD_USAGE_DATABASE="postgresql://u:pw2@d/x")
    assert read.gateway.limit_store == spec.gateway.limit_store
    assert read.gateway.usage == spec.gateway.usage


def test_a_dollar_and_a_brace_mean_themselves() -> None:
    spec = parse(
        {
            "gateway": {"allow_open": True},
            "pools": {"a": {"engine": "vllm", "version": "0.32.0", "model": "m/m", "args": {"chat-template": "${X}"}}},
        }
    )
    assert read_back(spec).pools["a"].args["chat-template"] == "${X}"


def test_an_open_gateway_has_to_be_asked_for() -> None:
    spec = parse({"pools": {"a": {"engine": "vllm", "version": "0.32.0", "model": "m/m"}}})
    with pytest.raises(UsageError, match="allow_open"):
        everything(spec)


def test_r42_a_gateway_drains_before_it_is_killed() -> None:
    spec = cluster(rest="x-nothing: 0")
    read = read_back(spec)
    assert read.gateway.shutdown_delay == 10
    kill = gateway(spec)["terminationGracePeriodSeconds"]
    assert isinstance(kill, int) and kill > read.gateway.shutdown_delay + read.gateway.drain


def test_a_gateway_holds_all_that_its_limits_let_it_hold() -> None:
    memory = gateway(cluster())["containers"][0]["resources"]["limits"]["memory"]  # type: ignore[index]  # plain data
    assert memory == "1536Mi"  # limits.buffered is 1 GiB


def test_certificates_and_keys_come_from_secrets() -> None:
    spec = parse(
        {
            "gateway": {"tls": {"certificate": "a.pem", "key": "b.pem"}, "keys_file": "keys.yaml"},
            "tenants": {"t": {}},
            "pools": {"a": {"engine": "vllm", "version": "0.32.0", "model": "m/m"}},
        }
    )
    read = read_back(spec)
    assert read.gateway.tls is not None and read.gateway.tls.certificate == "/etc/kilocard-tls/tls.crt"
    names = {each["secret"]["secretName"] for each in gateway(spec)["volumes"] if "secret" in each}  # type: ignore[attr-defined]  # plain data
    assert names == {"kilocard-tls", "kilocard-keys"}
    assert rendered(spec, "Service", "kilocard-gateway")["spec"]["ports"][0]["port"] == 443


def test_a_fixed_number_of_gateways_has_no_autoscaler() -> None:
    spec = cluster(rest="kubernetes: {gateways: 3}")
    assert rendered(spec, "Deployment", "kilocard-gateway")["spec"]["replicas"] == 3
    assert not [thing for thing in everything(spec) if thing["kind"] == "HorizontalPodAutoscaler"]


def test_everything_is_in_the_namespace_that_is_asked_for() -> None:
    spec = cluster(rest="kubernetes: {namespace: llm}")
    for thing in everything(spec):
        assert thing["kind"] == "Namespace" or thing["metadata"]["namespace"] == "llm"
        for subject in thing.get("subjects", []):
            assert subject["namespace"] == "llm"


def test_only_prometheus_reaches_the_admin_address() -> None:
    everybody, admin = rendered(cluster(), "NetworkPolicy", "kilocard-gateway")["spec"]["ingress"]
    assert everybody == {"ports": [{"protocol": "TCP", "port": 8000}]}
    assert admin["ports"] == [{"protocol": "TCP", "port": 8001}] and len(admin["from"]) == 1


def test_the_golden_config_is_a_cluster_file() -> None:
    spec = load(CLUSTERS / "fleet.yaml")
    assert yaml.safe_load(file_of(spec))["pools"].keys() == spec.pools.keys()


OTHERS = """a: {engine: vllm, service: 'team/b:http'}
c: {engine: vllm, service: 'team/d'}
e: {engine: vllm, service: 'llm/f'}"""


def test_the_gateway_may_look_into_the_namespaces_that_pools_name() -> None:
    spec = cluster(OTHERS, "kubernetes: {namespace: llm}")
    there = [thing for thing in everything(spec) if thing["metadata"].get("namespace") == "team"]
    assert [thing["kind"] for thing in there] == ["Role", "RoleBinding"]
    assert there[0]["rules"][0]["resources"] == ["endpointslices"]
    assert there[1]["subjects"] == [{"kind": "ServiceAccount", "name": "kilocard-gateway", "namespace": "llm"}]


def test_who_looks_into_another_namespace_has_to_be_known() -> None:
    with pytest.raises(UsageError, match=r"pool 'a': .* namespace team, .* say kubernetes\.namespace"):
        everything(cluster(OTHERS))


def test_a_chart_looks_into_other_namespaces_from_that_of_its_release() -> None:
    text = target("helm").render(cluster(OTHERS), RenderOptions(version="1.2.3"))["templates/gateway.yaml"]
    bindings = [part for part in text.split("---") if "kind: RoleBinding" in part and "namespace: team" in part]
    assert len(bindings) == 1 and "namespace: {{ .Release.Namespace }}" in bindings[0]
