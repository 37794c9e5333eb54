"""What a replica asks of Ray."""

from __future__ import annotations

from typing import Any

import pytest

from kilocard.backends.ray.shape import NodeRoom, Shape, places_itself, shape, waiting_for
from kilocard.core.errors import BackendError
from kilocard.engines.registry import engine
from kilocard.spec.model import GpuSpec, PlacementSpec, PoolSpec


def pool(name: str = "vllm", **fields: Any) -> PoolSpec:
    return PoolSpec("chat", name, model="org/m", **fields)


def shape_of(one: PoolSpec, *gpus: float) -> Shape:
    return shape(one, engine(one.engine), [NodeRoom(count, {}) for count in gpus])


def test_a_tensor_group_is_one_bundle_and_so_on_one_node() -> None:
    made = shape_of(pool(gpus=GpuSpec(tensor=4)), 2, 2, 2)
    assert made.bundles == ({"CPU": 1.0, "GPU": 4.0},), "it waits for a larger node rather than span two"
    assert made.strategy == "STRICT_PACK"


def test_pipeline_stages_stay_on_one_node_where_one_is_large_enough() -> None:
    both = pool(gpus=GpuSpec(tensor=4, pipeline=2))
    assert shape_of(both, 4, 8).bundles == ({"CPU": 1.0, "GPU": 8.0},)
    over_two = shape_of(both, 4, 4)
    assert over_two.bundles == ({"CPU": 1.0, "GPU": 4.0},) * 2
    assert over_two.strategy == "PACK"
    assert shape_of(both, 2, 2).bundles == ({"CPU": 1.0, "GPU": 8.0},), "no tensor group has room: wait"


def test_as_few_parts_as_the_nodes_allow() -> None:
    assert shape_of(pool(gpus=GpuSpec(tensor=2, pipeline=4)), 4, 4).bundles == ({"CPU": 1.0, "GPU": 4.0},) * 2
    assert shape_of(pool(gpus=GpuSpec(tensor=2, pipeline=3)), 4, 4).bundles == ({"CPU": 1.0, "GPU": 2.0},) * 3


def test_data_parallel_ranks_may_span_nodes_each_with_its_tensor_group() -> None:
    """Three machines with two GPUs each: TP2 × DP3."""
    made = shape_of(pool(gpus=GpuSpec(tensor=2), args={"data-parallel-size": 3}), 2, 2, 2)
    assert made.bundles == ({"CPU": 1.0, "GPU": 2.0},) * 3


def test_an_engine_that_places_itself_takes_no_gpu_of_ours() -> None:
    itself = pool(gpus=GpuSpec(tensor=4), args={"data-parallel-size": 2, "distributed_executor_backend": "ray"})
    assert places_itself(itself, engine("vllm"))
    assert shape_of(itself, 2, 2, 2, 2).bundles == ({"CPU": 1.0},)
    assert not places_itself(pool(args={"distributed-executor-backend": "mp"}), engine("vllm"))


def test_an_engine_that_can_not_span_nodes_says_so() -> None:
    wide = pool("trtllm", gpus=GpuSpec(tensor=2, pipeline=2))
    with pytest.raises(BackendError, match="needs 4 GPUs, the largest node that fits it has 2"):
        shape_of(wide, 2, 2)
    assert shape_of(wide).bundles == ({"CPU": 1.0, "GPU": 4.0},), "no node so far: one may come"


def test_only_nodes_with_the_pools_labels_count() -> None:
    one = pool(gpus=GpuSpec(tensor=2, pipeline=2), placement=PlacementSpec({"gpu-type": "A100"}))
    nodes = [NodeRoom(8, {"gpu-type": "H100"}), NodeRoom(2, {"gpu-type": "A100"})]
    made = shape(one, engine("vllm"), nodes)
    assert len(made.bundles) == 2
    assert made.labels == {"gpu-type": "A100"}
    assert waiting_for(made, nodes, False) == "waits for 2 × 2 free GPUs on nodes with gpu-type=A100 (2 nodes)"
    assert "no node with gpu-type=A100 could hold 2 GPUs" in waiting_for(made, nodes, True)


def test_engines_without_gpus_ask_for_a_cpu() -> None:
    made = shape_of(pool("llamacpp"), 0)
    assert made.bundles == ({"CPU": 1.0},)
    assert waiting_for(made, [], False) == "waits for 1 free CPU on a node (0 nodes)"
