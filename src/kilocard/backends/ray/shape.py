"""What a replica asks of Ray: bundles of GPUs, each on one node, and how they lie to each other. Pure.

A tensor-parallel group never spans nodes: its all-reduce in every layer wants the links inside a server. Pipeline
stages and data-parallel ranks may, each with its tensor group on one node.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from kilocard.core.errors import BackendError
from kilocard.engines.base import Engine
from kilocard.engines.flags import arguments
from kilocard.spec.model import PoolSpec

#: of each part where the pool says nothing: for the engine's own work beside the GPUs, and for engines without
CPUS = 1.0


@dataclass(frozen=True, slots=True)
class NodeRoom:
    """What one node has in all, free or not."""

    gpus: float
    labels: Mapping[str, str]
    cpus: float = CPUS

    def may_host(self, pool: PoolSpec, engine: Engine) -> bool:
        """Whether some part of a replica could run here. A head without CPUs hosts nothing."""
        needs_gpu = engine.gpu_count(pool) > 0 and not places_itself(pool, engine)
        wanted = dict(pool.placement.node_selector).items()
        return (
            wanted <= dict(self.labels).items()
            and self.cpus >= (pool.resources.cpu or CPUS)
            and (self.gpus > 0 or not needs_gpu)
        )


@dataclass(frozen=True, slots=True)
class Shape:
    """Resources of each bundle, in the order of the parts; one bundle lies on one node always."""

    bundles: tuple[Mapping[str, float], ...]
    #: Ray's: STRICT_PACK (one node), PACK (as few nodes as it can), SPREAD, STRICT_SPREAD
    strategy: str
    #: node labels that every bundle wants
    labels: Mapping[str, str]

    @property
    def gpus_each(self) -> float:
        return self.bundles[0].get("GPU", 0.0)


def shape(pool: PoolSpec, engine: Engine, nodes: Iterable[NodeRoom]) -> Shape:
    """The pool's shape on a cluster of such nodes.

    The whole replica in one bundle where some node is large enough for it, busy or not: it then waits for that node.
    Else as few equal bundles of whole tensor groups as the largest node allows; where no node has room for even one
    group, one bundle, since such nodes may still come. Raises BackendError where the engine can't span nodes.
    """
    labels = dict(pool.placement.node_selector)
    if places_itself(pool, engine):
        return Shape((_bundle(pool, 0),), "STRICT_PACK", labels)
    total = engine.gpu_count(pool)
    largest = max((node.gpus for node in nodes if node.may_host(pool, engine)), default=0.0)
    tensor = pool.gpus.tensor if pool.gpus is not None else total
    if largest >= total or largest < tensor or total == tensor:
        return Shape((_bundle(pool, total),), "STRICT_PACK", labels)
    if engine.capabilities.group is None:
        raise BackendError(
            f"pool {pool.name}: a replica needs {total} GPUs, the largest node that fits it has {largest:g}, and "
            f"engine {pool.engine} is not started over several nodes from here. Lower gpus.tensor × gpus.pipeline"
        )
    groups = total // tensor
    parts = next(count for count in range(2, groups + 1) if groups % count == 0 and total / count <= largest)
    return Shape(tuple(_bundle(pool, total // parts) for _ in range(parts)), "PACK", labels)


def places_itself(pool: PoolSpec, engine: Engine) -> bool:
    """The engine takes its GPUs from the Ray cluster by itself (vLLM with its Ray executor)."""
    said = arguments(pool)
    return any(said.get(name) == value for name, value in engine.capabilities.places_itself)


def _bundle(pool: PoolSpec, gpus: int) -> dict[str, float]:
    asked = pool.resources
    bundle = {"CPU": float(asked.cpu or CPUS)}
    if gpus:
        bundle["GPU"] = float(gpus)
    if asked.memory is not None:
        bundle["memory"] = float(asked.memory)
    return bundle


def waiting_for(shape: Shape, nodes: Sequence[NodeRoom], infeasible: bool) -> str:
    """Why a replica is pending, for people. `infeasible`: Ray says that no node could ever hold it."""
    bundle = shape.bundles[0]
    name = "GPU" if "GPU" in bundle else "CPU"
    many = "s" if bundle[name] != 1 or len(shape.bundles) > 1 else ""
    labels = " with " + ", ".join(f"{key}={value}" for key, value in shape.labels.items()) if shape.labels else ""
    if infeasible:
        return f"no node{labels} could hold {bundle[name]:g} {name}{many}: add one, or lower what the pool asks for"
    times = f"{len(shape.bundles)} × " if len(shape.bundles) > 1 else ""
    where = "nodes" if len(shape.bundles) > 1 else "a node"
    return f"waits for {times}{bundle[name]:g} free {name}{many} on {where}{labels} ({len(nodes)} nodes)"
