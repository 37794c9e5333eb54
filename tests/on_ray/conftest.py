"""A real Ray of several nodes on this machine, for the tests of this folder. scripts/test-ray runs them."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from parts import part_missing

TESTS = Path(__file__).parent.parent
#: bytes: the least that Ray takes is 75 MiB, and nothing of ours goes through it
OBJECT_STORE = 80 * 1024 * 1024


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(item.fspath).is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.timeout(400))  # processes of Ray take seconds to start, each


class Nodes:
    """The cluster's nodes. Each is a raylet with its workers."""

    def __init__(self) -> None:
        from ray.cluster_utils import Cluster

        self._cluster = Cluster()
        self._addresses = count(1)
        self.add(cpus=0)  # the head runs no replica; drivers connect to it, since its address is theirs
        self.address: str = self._cluster.address

    def add(self, **options: Any) -> Any:
        """`cpus`, `gpus`, `labels`; what is said of GPUs is believed."""
        named = {"num_cpus": options.pop("cpus", 2), "num_gpus": options.pop("gpus", 0)}
        named["node_ip_address"] = f"127.0.0.{next(self._addresses)}"
        return self._cluster.add_node(**named, object_store_memory=OBJECT_STORE, include_dashboard=False, **options)

    def kill(self, node: Any) -> None:
        """As when a machine loses its power: nothing is said to anybody."""
        self._cluster.remove_node(node, allow_graceful=False)

    def remove(self, node: Any) -> None:
        if node in self._cluster.worker_nodes:
            self._cluster.remove_node(node)

    def end(self) -> None:
        self._cluster.shutdown()


@pytest.fixture(scope="session")
def ray_is_here() -> None:
    if not importlib.util.find_spec("ray") or not importlib.util.find_spec("ray.cluster_utils"):
        part_missing("Ray is not installed here: run scripts/test-ray, which makes an environment of its own")


@pytest.fixture(scope="session")
def nodes(ray_is_here: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    """A head; tests add nodes to it."""
    home = tmp_path_factory.mktemp("home")
    # what raylets and so the actors inherit
    os.environ["PYTHONPATH"] = os.pathsep.join(
        filter(None, [str(TESTS), str(TESTS / "on_ray"), os.environ.get("PYTHONPATH", "")])
    )
    os.environ["KILOCARD_HOME"] = str(home)
    os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    os.environ.update(RAY_health_check_period_ms="500", RAY_health_check_timeout_ms="1000")
    os.environ["RAY_raylet_start_wait_time_s"] = "120"  # noqa: SIM112  # Ray spells it so
    made = Nodes()
    try:
        yield made
    finally:
        made.end()


@pytest.fixture
def node(nodes: Nodes) -> Iterator[Any]:
    """One node with room for two replicas, for one test."""
    one = nodes.add()
    yield one
    nodes.remove(one)
