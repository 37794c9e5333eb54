"""`kilocard render ray`: scripts for machines and manifests for KubeRay."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from kilocard.core.errors import UsageError
from kilocard.deploy.ray.render import render
from kilocard.deploy.target import RenderOptions
from kilocard.spec.model import ClusterSpec
from kilocard.spec.parse import parse

TINY = "  tiny: {engine: llamacpp, model: /models/a.gguf}\n"
POOL = """
gateway: {allow_open: true}
pools:
  chat:
    engine: vllm
    version: 0.32.0
    model: Qwen/Qwen2.5-7B-Instruct
    gpus: {type: A100-80G, tensor: 2, per_node: 2}
    replicas: 3
"""


def cluster(text: str = POOL) -> ClusterSpec:
    return parse(yaml.safe_load(text))


def rendered(text: str = POOL) -> dict[str, str]:
    return render(cluster(text), RenderOptions("1.2.3"))


def kuberay(text: str = POOL, file: str = "raycluster") -> dict[str, Any]:
    """By kind."""
    return {one["kind"]: one for one in yaml.safe_load_all(rendered(text)[f"kuberay/{file}.yaml"])}


def pods(spec: dict[str, Any]) -> list[dict[str, Any]]:
    return [group["template"]["spec"] for group in [spec["headGroupSpec"], *spec["workerGroupSpecs"]]]


def test_three_machines_with_two_gpus_each() -> None:
    """R37: `ray start --head --port=6379 --num-gpus=2` on one, `ray start --address=…` on the others."""
    files = rendered()
    head = files["machines/head.sh"].replace("\\\n  ", "")
    assert "exec ray start --head" in head
    assert '--port=6379 --num-gpus="${NUM_GPUS:-2}"' in head
    worker = files["machines/worker-2-gpus.sh"].replace("\\\n  ", "")
    assert 'exec ray start --address="${HEAD:?set HEAD to the head\'s address}:6379"' in worker
    assert '--num-gpus="${NUM_GPUS:-2}"' in worker
    assert "3 machines (the head counts)" in worker


def test_machines_of_two_kinds_are_two_scripts_with_their_labels() -> None:
    files = rendered(
        POOL
        + """
  big:
    engine: vllm
    version: 0.32.0
    model: org/big
    gpus: {tensor: 4, pipeline: 2, per_node: 4}
    placement: {node_selector: {gpu-type: H100}}
"""
    )
    assert {name for name in files if name.startswith("machines/worker")} == {
        "machines/worker-2-gpus.sh",
        "machines/worker-4-gpus-H100.sh",
    }
    assert "--labels=gpu-type=H100" in files["machines/worker-4-gpus-H100.sh"]
    assert "2 machines (the head counts)" in files["machines/worker-4-gpus-H100.sh"]
    assert "--labels" not in files["machines/worker-2-gpus.sh"]


def test_data_parallel_ranks_over_machines_where_vllm_places_them_itself() -> None:
    """R37: TP2 × DP3 on three machines with two A100 each."""
    text = POOL.replace("replicas: 3", "args: {data-parallel-size: 3, data-parallel-backend: ray}")
    assert "3 machines (the head counts)" in rendered(text)["machines/worker-2-gpus.sh"]
    [group] = kuberay(text)["RayCluster"]["spec"]["workerGroupSpecs"]
    assert (group["maxReplicas"], group["rayStartParams"]["num-gpus"]) == (3, "2")


def test_dp_06_shared_memory_holds_the_object_store() -> None:
    """Ray's object store is set, and /dev/shm is larger; where it can't be, both numbers are said."""
    spec = kuberay()["RayCluster"]["spec"]
    for group in [spec["headGroupSpec"], *spec["workerGroupSpecs"]]:
        assert group["rayStartParams"]["object-store-memory"] == str(2**30)
        [shm] = [volume for volume in group["template"]["spec"]["volumes"] if volume["name"] == "shm"]
        assert shm["emptyDir"] == {"medium": "Memory", "sizeLimit": "16Gi"}
        mounts = group["template"]["spec"]["containers"][0]["volumeMounts"]
        assert {"name": "shm", "mountPath": "/dev/shm"} in mounts
    for script in ("head", "worker-2-gpus"):
        assert "--object-store-memory=1073741824" in rendered()[f"machines/{script}.sh"]
    tight = POOL + "    resources: {shm: 9GiB}\nray: {object_store: 9728MiB}\n"
    with pytest.raises(UsageError, match=r"resources.shm.* 9663676416 bytes is too small .* 10200547328 bytes"):
        rendered(tight)


def test_dp_07_every_node_knows_which_card_to_use() -> None:
    spec = kuberay()["RayCluster"]["spec"]
    for body in pods(spec):
        env = {one["name"]: one for one in body["containers"][0]["env"]}
        assert env["NCCL_SOCKET_IFNAME"]["value"] == "^lo,docker,veth"
        assert env["GLOO_SOCKET_IFNAME"]["value"] == "eth0"
        assert env["VLLM_HOST_IP"]["valueFrom"]["fieldRef"]["fieldPath"] == "status.podIP"
        assert len(env) == len(body["containers"][0]["env"]), "each once"
    chosen = kuberay(POOL + "ray: {interface: ib0}\n")["RayCluster"]["spec"]
    env = {one["name"]: one.get("value") for one in pods(chosen)[1]["containers"][0]["env"]}
    assert env["NCCL_SOCKET_IFNAME"] == env["GLOO_SOCKET_IFNAME"] == "ib0"
    for name, script in rendered().items():
        if name.startswith("machines/"):
            before = script.partition("exec ray start")[0]
            assert "export NCCL_SOCKET_IFNAME='^lo,docker,veth'" in before
            assert "export GLOO_SOCKET_IFNAME" in before
            assert 'export VLLM_HOST_IP="$NODE_IP"' in before


def test_a_pool_has_pods_of_its_own_which_the_autoscaler_adds() -> None:
    found = kuberay(POOL.replace("replicas: 3", "replicas: {min: 1, max: 4}\n    resources: {cpu: 4, memory: 64GiB}"))
    spec = found["RayCluster"]["spec"]
    assert spec["enableInTreeAutoscaling"] is True
    [group] = spec["workerGroupSpecs"]
    assert (group["minReplicas"], group["maxReplicas"]) == (1, 4)
    assert group["labels"] == {"kilocard/pool": "chat"}
    assert "labels" not in group["rayStartParams"], "KubeRay refuses them there"
    container = group["template"]["spec"]["containers"][0]
    assert container["resources"] == {
        "requests": {"cpu": "4", "memory": "66Gi"},
        "limits": {"memory": "66Gi", "nvidia.com/gpu": "2"},
    }
    assert "command" not in container and "livenessProbe" not in container, "the operator writes them"
    own = yaml.safe_load(found["ConfigMap"]["data"]["cluster.yaml"])
    assert own["pools"]["chat"]["placement"]["node_selector"] == {"kilocard/pool": "chat"}
    assert parse(own).pools["chat"].resources.cpu == 4


def test_no_replica_runs_on_the_head_and_the_controller_does() -> None:
    spec = kuberay()["RayCluster"]["spec"]
    head = spec["headGroupSpec"]
    assert (head["rayStartParams"]["num-cpus"], head["rayStartParams"]["num-gpus"]) == ("0", "0")
    ray, controller = head["template"]["spec"]["containers"]
    assert "kilocard control /etc/kilocard/cluster.yaml --backend ray" in controller["command"][-1]
    assert head["template"]["spec"]["shareProcessNamespace"] is True, "else Ray does not find the node that it is on"
    shared = {"name": "ray", "mountPath": "/tmp/ray"}
    assert shared in ray["volumeMounts"] and shared in controller["volumeMounts"]


def test_the_controller_tells_every_gateway() -> None:
    files = rendered(POOL + "kubernetes: {gateways: {min: 2, max: 6}}\n")
    objects = {one["kind"]: one for one in yaml.safe_load_all(files["kuberay/gateway.yaml"])}
    gateways = objects["StatefulSet"]
    assert (gateways["spec"]["replicas"], gateways["spec"]["serviceName"]) == (2, "kilocard-gateway-admin")
    own = yaml.safe_load(objects["ConfigMap"]["data"]["cluster.yaml"])
    assert "service" not in own["pools"]["chat"], "nobody is asked where replicas are"
    for number in (0, 1):
        assert (
            f"--admin http://kilocard-gateway-{number}.kilocard-gateway-admin:8001" in files["kuberay/raycluster.yaml"]
        )


def test_secrets_are_not_written_out() -> None:
    text = POOL + "    env: {HF_TOKEN: hf-secret, MY_API_KEY: another-secret, VLLM_LOGGING_LEVEL: INFO}\n"
    for name, content in rendered(text).items():
        assert "hf-secret" not in content and "another-secret" not in content, name


def test_ray_serve_runs_what_it_can() -> None:
    text = POOL + "    args: {max-num-seqs: 32, enable-prefix-caching: true}\n" + TINY
    service = kuberay(text, "rayservice")["RayService"]["spec"]
    [app] = yaml.safe_load(service["serveConfigV2"])["applications"]
    assert app["import_path"] == "ray.serve.llm:build_openai_app"
    [config] = app["args"]["llm_configs"]
    assert config["model_loading_config"] == {"model_id": "chat", "model_source": "Qwen/Qwen2.5-7B-Instruct"}
    assert config["engine_kwargs"] == {
        "max_num_seqs": 32,
        "enable_prefix_caching": True,
        "tensor_parallel_size": 2,
        "pipeline_parallel_size": 1,
    }
    assert config["deployment_config"]["autoscaling_config"]["target_ongoing_requests"] == 32
    assert [group["groupName"] for group in service["rayClusterConfig"]["workerGroupSpecs"]] == ["chat"]
    assert len(service["rayClusterConfig"]["headGroupSpec"]["template"]["spec"]["containers"]) == 1
    assert "kuberay/rayservice.yaml" not in rendered("gateway: {allow_open: true}\npools:\n" + TINY)


def test_the_head_may_keep_what_it_knows_in_redis() -> None:
    text = POOL + "ray: {redis: 'redis:6379'}\n"
    assert kuberay(text)["RayCluster"]["spec"]["gcsFaultToleranceOptions"] == {"redisAddress": "redis:6379"}
    assert "export RAY_REDIS_ADDRESS=redis:6379" in rendered(text)["machines/head.sh"]
    assert "RAY_REDIS_ADDRESS" not in rendered(text)["machines/worker-2-gpus.sh"]


def test_pools_and_machines_that_resemble_each_other_are_told_apart() -> None:
    """One group or script would take the other's place, in silence."""
    pool = "{engine: vllm, version: 0.32.0, model: m/m, placement: {node_selector: {%s: A100}}}"
    text = "gateway: {allow_open: true}\npools:\n" + "".join(
        f"  {name}: {pool % key}\n" for name, key in (("a.b", "card"), ("a-b", "gpu"), ("A_b", "gpu"))
    )
    groups = [group["groupName"] for group in kuberay(text)["RayCluster"]["spec"]["workerGroupSpecs"]]
    assert len(set(groups)) == 3 and "a-b" in groups
    scripts = [text for file, text in rendered(text).items() if file.startswith("machines/worker-")]
    assert len(scripts) == 2 and {"card=A100", "gpu=A100"} == {
        line.partition("--labels=")[2].split()[0]
        for script in scripts
        for line in script.splitlines()
        if "--labels" in line
    }


def test_a_gateway_on_kuberay_may_look_for_services_only_where_a_pool_names_one() -> None:
    assert "Role" not in kuberay(file="gateway")
    asks = kuberay(POOL + "  other: {engine: vllm, service: 'vllm:http'}\n", "gateway")
    assert asks["Role"]["rules"][0]["resources"] == ["endpointslices"]
    body = asks["StatefulSet"]["spec"]["template"]["spec"]
    assert body["serviceAccountName"] == "kilocard-gateway" and "automountServiceAccountToken" not in body
