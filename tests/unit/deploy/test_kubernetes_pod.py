"""The pod of a replica: what a working GPU pod needs (R40–R44), and the faults that others had with theirs."""

from __future__ import annotations

import json

import pytest
from clusters import body, cluster, container, environment, everything, pool, rendered
from hypothesis import given
from hypothesis import strategies as st

from kilocard.core.errors import SpecError, UsageError


def test_gpus_stand_in_limits_only_and_once() -> None:
    resources = container(pool("gpus: {tensor: 2}, resources: {cpu: 4, memory: 64GiB}"))["resources"]
    assert resources == {
        "requests": {"cpu": "4", "memory": "64Gi"},
        "limits": {"memory": "64Gi", "nvidia.com/gpu": "2"},
    }


def test_dp_17_every_pod_asks_for_all_its_gpus_and_may_name_a_runtime_class() -> None:
    spec = pool("gpus: {tensor: 4, pipeline: 2}, placement: {runtime_class: nvidia}")
    assert container(spec)["resources"]["limits"]["nvidia.com/gpu"] == "8"
    assert body(spec)["runtimeClassName"] == "nvidia"
    assert container(pool(""))["resources"]["limits"]["nvidia.com/gpu"] == "1"


def test_dp_01_no_service_gives_vllm_a_port_variable() -> None:
    spec = cluster(
        "vllm: {engine: vllm, version: 0.32.0, model: m/m}\nVLLM: {engine: vllm, version: 0.32.0, model: m/m}"
    )
    services = [thing for thing in everything(spec) if thing["kind"] == "Service"]
    assert services and all(thing["metadata"]["name"].startswith("kilocard-") for thing in services)
    assert len({thing["metadata"]["name"] for thing in services}) == len(services)
    for thing in everything(spec):
        if thing["kind"] == "Deployment":
            assert thing["spec"]["template"]["spec"]["enableServiceLinks"] is False


def test_dp_10_vllm_port_may_not_be_the_serving_port() -> None:
    with pytest.raises(UsageError, match="VLLM_PORT is 8000"):
        everything(pool("env: {VLLM_PORT: 8000}"))
    assert environment(pool("env: {VLLM_PORT: 9000}"))["VLLM_PORT"]["value"] == "9000"


def test_dp_09_no_token_is_written_and_the_hub_is_left_alone_where_the_model_is_a_folder() -> None:
    spec = pool("env: {HF_TOKEN: hf_abc, OTHER_API_KEY: shh, TOKENIZERS_PARALLELISM: 'false'}")
    found = environment(spec)
    assert found["HF_TOKEN"]["valueFrom"]["secretKeyRef"] == {"name": "kilocard-hub", "key": "token", "optional": True}
    assert found["OTHER_API_KEY"]["valueFrom"]["secretKeyRef"] == {"name": "kilocard-a", "key": "OTHER_API_KEY"}
    assert found["TOKENIZERS_PARALLELISM"]["value"] == "false"
    text = json.dumps(everything(spec))
    assert "hf_abc" not in text and "shh" not in text
    offline = environment(cluster("a: {engine: vllm, version: 0.32.0, model: /models/m}"))
    assert offline["HF_HUB_OFFLINE"]["value"] == "1" and "HF_TOKEN" not in offline


def test_a_secret_among_the_arguments_is_refused() -> None:
    with pytest.raises(UsageError, match="api-key"):
        everything(pool("args: {api-key: shh}"))


CACHES = {
    "emptyDir": "kubernetes: {}",
    "persistentVolumeClaim": "kubernetes: {model_cache: {size: 500GiB}}",
    "hostPath": "kubernetes: {model_cache: {host_path: /data/models}}",
}


@pytest.mark.parametrize("kind", CACHES)
def test_dp_21_a_hub_cache_is_writable(kind: str) -> None:
    spec = cluster(rest=CACHES[kind])
    (mount,) = [each for each in container(spec)["volumeMounts"] if each["name"] == "models"]
    (volume,) = [each for each in body(spec)["volumes"] if each["name"] == "models"]
    assert kind in volume and not mount.get("readOnly")
    assert environment(spec)["HF_HOME"]["value"] == mount["mountPath"]


@pytest.mark.parametrize("kind", ["persistentVolumeClaim", "hostPath"])
def test_dp_21_read_only_is_for_plain_files_and_offline(kind: str) -> None:
    spec = cluster("a: {engine: vllm, version: 0.32.0, model: /models/m}", CACHES[kind])
    (mount,) = [each for each in container(spec)["volumeMounts"] if each["name"] == "models"]
    assert mount["readOnly"] is True
    assert environment(spec)["HF_HUB_OFFLINE"]["value"] == "1" and "HF_HOME" not in environment(spec)


def test_a_model_outside_the_cache_is_refused() -> None:
    with pytest.raises(UsageError, match="write model: /models/"):
        everything(cluster("a: {engine: vllm, version: 0.32.0, model: /data/m}", CACHES["hostPath"]))


def test_several_replicas_can_mount_the_claim_that_is_made() -> None:
    spec = cluster(rest="kubernetes: {model_cache: {size: 500GiB, storage_class: nfs}}")
    claim = rendered(spec, "PersistentVolumeClaim", "kilocard-models")["spec"]
    assert claim["accessModes"] == ["ReadWriteMany"] and claim["storageClassName"] == "nfs"
    assert claim["resources"]["requests"]["storage"] == "500Gi"


def test_shared_memory_is_a_memory_volume() -> None:
    (shm,) = [each for each in body(pool("resources: {shm: 32GiB}"))["volumes"] if each["name"] == "shm"]
    assert shm["emptyDir"] == {"medium": "Memory", "sizeLimit": "32Gi"}


def test_a_long_load_is_allowed_for_and_nothing_kills_a_busy_engine() -> None:
    one = container(pool("start: {timeout: 1h}"))
    assert one["startupProbe"]["failureThreshold"] * one["startupProbe"]["periodSeconds"] == 3600
    assert one["readinessProbe"]["timeoutSeconds"] >= 10
    assert "livenessProbe" not in one
    assert rendered(pool("start: {timeout: 1h}"), "Deployment")["spec"]["progressDeadlineSeconds"] > 3600


@given(
    grace=st.integers(0, 4000),
    version=st.sampled_from(["0.32.0", "0.18.0", "0.17.1", "0.10.0"]),
    engine=st.sampled_from(["vllm", "sglang", "trtllm"]),
)
def test_as_04_the_kill_comes_after_the_drain(grace: int, version: str, engine: str) -> None:
    keys = f"engine: {engine}, version: {version}, image: i, model: m/m, drain: {grace}"
    found = body(cluster(f"a: {{{keys}}}"))
    waits = found["containers"][0]["lifecycle"]["preStop"]["sleep"]["seconds"]
    argv = found["containers"][0]["command"]
    kill = found["terminationGracePeriodSeconds"]
    assert kill >= 120
    assert waits >= 5, "gateways hear of it first"
    if engine == "sglang" or "--shutdown-timeout" in argv:
        assert kill > waits + grace, "it finishes requests after SIGTERM"
    else:
        assert grace < waits < kill, "SIGTERM would cut them: they end before it"


def test_vllm_gets_its_shutdown_flag_from_the_version_that_has_it() -> None:
    assert "--shutdown-timeout" in container(pool("drain: 5m"))["command"]
    old = container(cluster("a: {engine: vllm, version: 0.17.1, model: m/m}"))
    assert "--shutdown-timeout" not in old["command"] and old["lifecycle"]["preStop"]["sleep"]["seconds"] == 125


def test_nodes_are_chosen_by_label_and_taints_are_borne() -> None:
    keys = 'node_selector: {gpu-type: A100}, tolerations: ["a", "b=c", "d=e:NoExecute", "x.io/f:NoSchedule"]'
    found = body(pool(f"placement: {{{keys}}}"))
    assert found["nodeSelector"] == {"gpu-type": "A100"}
    assert found["tolerations"] == [
        {"key": "a", "operator": "Exists"},
        {"key": "b", "operator": "Equal", "value": "c"},
        {"key": "d", "operator": "Equal", "value": "e", "effect": "NoExecute"},
        {"key": "x.io/f", "operator": "Exists", "effect": "NoSchedule"},
        {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"},
    ]


def test_an_exclusive_pool_runs_on_its_tenants_nodes_and_nowhere_else() -> None:
    spec = cluster(
        "a: {engine: vllm, version: 0.32.0, model: m/m, placement: {exclusive: true}, tenants: [red, blue]}",
        "tenants: {red: {}, blue: {}}",
    )
    (term,) = body(spec)["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][
        "nodeSelectorTerms"
    ]
    assert term["matchExpressions"] == [{"key": "kilocard/tenant", "operator": "In", "values": ["red", "blue"]}]
    taints = [each for each in body(spec)["tolerations"] if each["key"] == "kilocard/tenant"]
    assert [each["value"] for each in taints] == ["red", "blue"]


def test_an_image_without_a_version_is_refused() -> None:
    with pytest.raises(UsageError, match="must run the same"):
        everything(cluster("a: {engine: vllm, model: m/m}"))
    with pytest.raises(UsageError, match="which `image`"):
        everything(cluster("a: {engine: trtllm, version: 1.2.0, model: m/m}"))
    assert container(pool("image: mine:1"))["image"] == "mine:1"


def test_what_looks_like_a_variable_of_kubernetes_is_meant_as_it_is() -> None:
    spec = pool("args: {chat-template: 'a $(HOME) b'}, env: {X: '$(PATH)'}")
    assert "a $$(HOME) b" in container(spec)["command"]
    assert environment(spec)["X"]["value"] == "$$(PATH)"


def test_a_pod_has_few_rights() -> None:
    found = body(pool(""))
    assert found["automountServiceAccountToken"] is False
    assert found["securityContext"] == {"seccompProfile": {"type": "RuntimeDefault"}}
    assert found["containers"][0]["securityContext"]["capabilities"] == {"drop": ["ALL"]}


@pytest.mark.parametrize(
    "label", ["gpu-type: A100 80G", "gpu-type: 'a,b=c'", "'gpu type': A100", f"a: {'x' * 64}", "a: '-'"]
)
def test_what_no_node_can_have_as_a_label_is_said_before_anything_is_applied(label: str) -> None:
    with pytest.raises(SpecError, match="node_selector"):
        pool(f"placement: {{node_selector: {{{label}}}}}")
