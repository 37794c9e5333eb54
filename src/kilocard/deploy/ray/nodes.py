"""What holds for every node of a Ray cluster, be it a machine or a pod."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from math import ceil

from kilocard.core.errors import UsageError
from kilocard.deploy.replica import Machines as Spread
from kilocard.deploy.replica import Replica, replica
from kilocard.engines.registry import engine
from kilocard.spec.model import ClusterSpec, PoolSpec

#: more than the object store that /dev/shm has to hold: Ray checks at its start, and engines use it too
SHM_MARGIN = 2 * 1024**3
#: bytes of /dev/shm where a pool says nothing
SHM = 16 * 1024**3
#: NCCL's way to say "not these"; Gloo knows names only
NOT_THESE = "^lo,docker,veth"


def on_ray(spec: ClusterSpec, pool: PoolSpec, image: str) -> Replica:
    """One replica of the pool as Ray places it; `image` has Ray, kilocard and the engines in it."""
    return replica(spec, replace(pool, image=pool.image or image), image, over_nodes)


def over_nodes(pool: PoolSpec, gpus: int) -> Spread:
    """As few nodes as gpus.per_node allows, with equally many whole tensor-parallel groups on each.

    Pipeline stages and data-parallel ranks may lie apart. Raises UsageError where they can't, or a group alone is
    larger than a machine.
    """
    if pool.gpus is None or gpus <= pool.gpus.per_node:
        return Spread(1, gpus)
    tensor, most = pool.gpus.tensor, pool.gpus.per_node
    if tensor > most:
        raise UsageError(
            f"pool {pool.name!r}: a tensor-parallel group of {tensor} GPUs lies on one node of Ray, and gpus.per_node "
            f"says {most}: lower gpus.tensor and raise gpus.pipeline, or raise gpus.per_node if the machines have more"
        )
    can = engine(pool.engine).capabilities
    if can.group is None and not can.places_itself:
        raise UsageError(
            f"pool {pool.name!r}: its replicas need several machines of {most} GPUs, which kilocard can't start "
            f"{pool.engine} on: use fewer GPUs, or raise gpus.per_node if the machines have more"
        )
    groups = gpus // tensor
    count = next(count for count in range(2, groups + 1) if groups % count == 0 and gpus // count <= most)
    return Spread(count, gpus // count)


@dataclass(frozen=True, slots=True)
class Machines:
    """Machines that are alike: the same labels, the same number of GPUs."""

    name: str
    gpus: int
    labels: tuple[tuple[str, str], ...]
    #: pools that run there
    pools: tuple[str, ...]
    #: how many the pools need at their most
    count: int


def machines(replicas: Sequence[Replica]) -> list[Machines]:
    """The kinds of machines that the pools need; those with GPUs first."""
    kinds: dict[tuple[int, tuple[tuple[str, str], ...]], list[Replica]] = {}
    for one in replicas:
        pool = one.pool
        gpus = _per_machine(pool) if one.machines.gpus else 0
        kinds.setdefault((gpus, tuple(sorted(pool.placement.node_selector.items()))), []).append(one)
    found = []
    for (gpus, labels), ones in sorted(kinds.items(), key=lambda kind: (-kind[0][0], kind[0][1])):
        wanted = sum(one.pool.replicas.max * one.machines.count * one.machines.gpus for one in ones)
        name = _name(gpus, labels)
        pools = tuple(one.pool.name for one in ones)
        found.append(Machines(name, gpus, labels, pools, max(1, ceil(wanted / gpus)) if gpus else 1))
    return _told_apart(found)


def _name(gpus: int, labels: tuple[tuple[str, str], ...]) -> str:
    """Stands in a file's name. Of the labels the values say most."""
    return "-".join([f"{gpus}-gpus" if gpus != 1 else "1-gpu", *(value for _, value in labels if value)])


def _told_apart(found: list[Machines]) -> list[Machines]:
    """A short hash for kinds whose labels have the same values under other names: each has a file of its own, also
    where a file system does not care for capitals."""
    times = Counter(one.name.lower() for one in found)
    return [
        one
        if times[one.name.lower()] == 1
        else replace(one, name=f"{one.name}-{sha256(repr(one.labels).encode()).hexdigest()[:8]}")
        for one in found
    ]


def _per_machine(pool: PoolSpec) -> int:
    return pool.gpus.per_node if pool.gpus is not None else 1


def shm(spec: ClusterSpec, replica: Replica | None) -> int:
    """Bytes of /dev/shm. Raises UsageError where it can't hold Ray's object store: the node would die at its start."""
    asked = SHM if replica is None else replica.pool.resources.shm or SHM
    least = spec.ray.object_store + SHM_MARGIN
    if asked < least:
        where = "a node's" if replica is None else f"pool {replica.pool.name!r}: resources.shm"
        raise UsageError(
            f"{where} /dev/shm of {asked} bytes is too small for ray.object_store, {spec.ray.object_store} bytes: "
            f"Ray needs {least} bytes there. Raise resources.shm or lower ray.object_store"
        )
    return asked
