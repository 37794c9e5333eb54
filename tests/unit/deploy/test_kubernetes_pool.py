"""The objects of a pool: counts with one writer, groups over several machines, who reaches replicas."""

from __future__ import annotations

import pytest
from clusters import cluster, everything, pool, rendered

from kilocard.core.errors import UsageError

SCALED = "replicas: {min: 2, max: 8}, scaling: {}"


def test_as_03_one_writer_of_replica_counts() -> None:
    """Without the controller the manifest is the writer; with it the manifest has no count. No autoscaler for pools."""
    spec = pool(SCALED)
    assert rendered(spec, "Deployment")["spec"]["replicas"] == 2
    controlled = cluster(
        f"a: {{engine: vllm, version: 0.32.0, model: m/m, {SCALED}}}", "kubernetes: {controller: true}"
    )
    assert "replicas" not in rendered(controlled, "Deployment")["spec"]
    for each in (spec, controlled):
        scaled = [
            thing["spec"]["scaleTargetRef"]["name"]
            for thing in everything(each)
            if thing["kind"] == "HorizontalPodAutoscaler"
        ]
        assert scaled == ["kilocard-gateway"]
        assert "replicas" not in rendered(each, "Deployment", "kilocard-gateway")["spec"]


def test_as_11_a_pool_without_scaling_keeps_its_count_beside_a_controller() -> None:
    spec = cluster("a: {engine: vllm, version: 0.32.0, model: m/m, replicas: 3}", "kubernetes: {controller: true}")
    assert rendered(spec, "Deployment")["spec"]["replicas"] == 3
    assert not [thing for thing in everything(spec) if thing["metadata"]["name"] == "kilocard-controller"]


def test_a_pool_that_nobody_would_wake_is_refused() -> None:
    with pytest.raises(UsageError, match="nobody would ever start"):
        everything(pool("replicas: {min: 0, max: 2}, scaling: {}"))
    assert rendered(pool("replicas: {min: 0, max: 2}"), "Deployment")["spec"]["replicas"] == 0


def test_the_controller_may_touch_only_the_pools_that_it_scales() -> None:
    spec = cluster(
        f"a: {{engine: vllm, version: 0.32.0, model: m/m, {SCALED}}}\nb: {{engine: vllm, version: 0.32.0, model: m/m}}",
        "kubernetes: {controller: true}",
    )
    rules = rendered(spec, "Role", "kilocard-controller")["rules"]
    (counts,) = [rule for rule in rules if "deployments" in rule["resources"]]
    assert counts["resourceNames"] == ["kilocard-a"] and set(counts["verbs"]) == {"get", "patch"}
    assert not [rule for rule in rules if "*" in rule["verbs"] + rule["resources"] + rule["apiGroups"]]


def group(keys: str = "gpus: {tensor: 8, pipeline: 2}") -> dict[str, object]:
    found: dict[str, object] = rendered(pool(keys), "LeaderWorkerSet", "kilocard-a-group")["spec"]
    return found


def test_a_replica_of_more_gpus_than_a_machine_has_is_a_group() -> None:
    template = group()["leaderWorkerTemplate"]
    assert template["size"] == 2  # type: ignore[index]  # plain data
    leader, worker = (template[key]["spec"]["containers"][0] for key in ("leaderTemplate", "workerTemplate"))  # type: ignore[index]  # same
    for one in (leader, worker):
        assert one["resources"]["limits"]["nvidia.com/gpu"] == "8"
        argv = " ".join(one["command"])
        assert "--tensor-parallel-size 8 --pipeline-parallel-size 2" in argv
        assert "--nnodes $(LWS_GROUP_SIZE) --node-rank $(LWS_WORKER_INDEX) --master-addr $(LWS_LEADER_ADDRESS)" in argv
    assert "--headless" in worker["command"] and "--headless" not in leader["command"]
    assert "startupProbe" in leader and "startupProbe" not in worker


def test_dp_07_network_interfaces_are_set_on_every_machine() -> None:
    template = group()["leaderWorkerTemplate"]
    for key in ("leaderTemplate", "workerTemplate"):
        env = {each["name"]: each for each in template[key]["spec"]["containers"][0]["env"]}  # type: ignore[index]  # plain data
        assert env["GLOO_SOCKET_IFNAME"]["value"] == env["NCCL_SOCKET_IFNAME"]["value"] == "eth0"
        assert env["VLLM_HOST_IP"]["valueFrom"]["fieldRef"]["fieldPath"] == "status.podIP"
    chosen = group("gpus: {tensor: 8, pipeline: 2}, env: {NCCL_SOCKET_IFNAME: ib0}")["leaderWorkerTemplate"]
    for key in ("leaderTemplate", "workerTemplate"):
        env = {each["name"]: each for each in chosen[key]["spec"]["containers"][0]["env"]}  # type: ignore[index]  # plain data
        assert env["NCCL_SOCKET_IFNAME"]["value"] == "ib0"


def test_dp_06_a_group_has_no_ray_object_store_and_room_in_shm() -> None:
    """vLLM's own processes span the machines, so nothing asks /dev/shm for a share of the node's memory."""
    template = group()["leaderWorkerTemplate"]
    spec = template["workerTemplate"]["spec"]  # type: ignore[index]  # plain data
    assert "ray" not in spec["containers"][0]["command"]
    assert spec["volumes"][0]["emptyDir"] == {"medium": "Memory", "sizeLimit": "16Gi"}


def test_workers_stay_until_the_leader_has_finished() -> None:
    template = group("gpus: {tensor: 16}, drain: 3m")["leaderWorkerTemplate"]
    leader, worker = (
        template[key]["spec"]["containers"][0]["lifecycle"]["preStop"]["sleep"]["seconds"]  # type: ignore[index]  # plain data
        for key in ("leaderTemplate", "workerTemplate")
    )
    assert (leader, worker) == (5, 185)


def test_only_the_leader_of_a_group_is_a_replica() -> None:
    service = rendered(pool("gpus: {tensor: 16}"), "Service")
    assert service["spec"]["selector"]["leaderworkerset.sigs.k8s.io/worker-index"] == "0"


@pytest.mark.parametrize(
    ("gpus", "machines"),
    [("tensor: 8", 1), ("tensor: 8, pipeline: 3", 3), ("tensor: 4, pipeline: 3", 3), ("tensor: 16", 2),
     ("tensor: 6, pipeline: 2, per_node: 4", 4), ("tensor: 3, per_node: 2", 3),
     ("tensor: 2, pipeline: 2, per_node: 2", 2)],
)  # fmt: skip
def test_tensor_parallel_groups_stay_whole(gpus: str, machines: int) -> None:
    kinds = {thing["kind"]: thing for thing in everything(pool(f"gpus: {{{gpus}}}"))}
    found = kinds.get("LeaderWorkerSet")
    assert (found["spec"]["leaderWorkerTemplate"]["size"] if found else 1) == machines


def test_data_parallel_engines_behind_one_port_stay_on_one_machine() -> None:
    with pytest.raises(UsageError, match="data-parallel"):
        everything(pool("gpus: {tensor: 8}, args: {data-parallel-size: 2}"))


@pytest.mark.parametrize("engine", ["engine: trtllm, image: i", "engine: vllm, version: 0.11.0"])
def test_an_engine_that_can_not_span_machines_is_refused(engine: str) -> None:
    with pytest.raises(UsageError, match="several machines"):
        everything(cluster(f"a: {{{engine}, model: m/m, gpus: {{tensor: 16}}}}"))


def test_only_gateway_and_prometheus_reach_replicas() -> None:
    (rule,) = rendered(pool(""), "NetworkPolicy")["spec"]["ingress"]
    gateway, prometheus = rule["from"]
    assert gateway["podSelector"]["matchLabels"]["app.kubernetes.io/component"] == "gateway"
    assert prometheus["namespaceSelector"]["matchLabels"] == {"kubernetes.io/metadata.name": "monitoring"}
    assert rule["ports"] == [{"protocol": "TCP", "port": 8000}]


def test_a_budget_never_blocks_the_emptying_of_a_node() -> None:
    assert rendered(pool("replicas: 1"), "PodDisruptionBudget")["spec"]["maxUnavailable"] == 1


def test_pools_that_exist_have_no_objects() -> None:
    spec = cluster("a: {engine: external, endpoints: ['http://h:1']}\nb: {engine: external, service: b:http}")
    assert {thing["metadata"]["name"] for thing in everything(spec)} == {"kilocard-gateway"}


def test_a_pool_may_not_take_the_gateways_name() -> None:
    with pytest.raises(UsageError, match="kilocard's own gateway"):
        everything(cluster("gateway: {engine: vllm, version: 0.32.0, model: m/m}"))


def test_pod_monitors_are_written_where_they_are_asked_for_and_there_is_a_page() -> None:
    keys = "a: {engine: vllm, version: 0.32.0, model: m/m}\nb: {engine: ollama, version: 0.13.0, model: m}"
    assert not [thing for thing in everything(cluster(keys)) if thing["kind"] == "PodMonitor"]
    spec = cluster(keys, "kubernetes: {pod_monitors: true}")
    found = {thing["metadata"]["name"]: thing for thing in everything(spec) if thing["kind"] == "PodMonitor"}
    assert set(found) == {"kilocard-gateway", "kilocard-a"}
    (page,) = found["kilocard-a"]["spec"]["podMetricsEndpoints"]
    assert page == {"port": "http", "path": "/metrics"}
