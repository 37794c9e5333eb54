"""Which GPUs of a machine may form one replica: tensor-parallel groups by topology."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

from kilocard.planner.topology import Link, LinkKind, Topology

#: beyond this many GPUs in one machine with uneven links, sets are no longer tried one by one
_TRY_ALL = 16


@dataclass(frozen=True, slots=True)
class Placement:
    """One way to use a machine: groups of `tensor` GPUs each, the others left as they are."""

    tensor: int
    #: GPU numbers of each group, best linked first
    groups: tuple[tuple[int, ...], ...]
    #: worst link within each group; None for groups of one GPU
    links: tuple[Link | None, ...]
    #: GPUs that fit in no group: replicas of their own where the model fits on one
    left_over: tuple[int, ...]
    #: why it can't be done at all; empty: it can
    refusal: str = ""
    warnings: tuple[str, ...] = ()

    @property
    def possible(self) -> bool:
        return not self.refusal and bool(self.groups)


def placement(topology: Topology, tensor: int, *, heads: int | None = None) -> Placement:
    """The best groups of `tensor` GPUs in this machine. `heads`: the model's attention heads, which TP must divide."""
    if tensor > topology.gpus:
        return Placement(tensor, (), (), tuple(range(topology.gpus)), f"the machine has {topology.gpus} GPUs")
    if heads is not None and heads % tensor:
        return Placement(
            tensor,
            (),
            (),
            tuple(range(topology.gpus)),
            f"{heads} attention heads can't be divided among {tensor} GPUs",
        )
    groups, left = _groups(topology, tensor)
    links = tuple(topology.weakest(group) for group in groups)
    return Placement(tensor, groups, links, left, warnings=tuple(_warnings(topology, groups, links)))


def placements(topology: Topology, *, heads: int | None = None) -> list[Placement]:
    """Every tensor size from one GPU to the whole machine, refused ones included (they say why)."""
    return [placement(topology, tensor, heads=heads) for tensor in range(1, topology.gpus + 1)]


def recommended(topology: Topology, *, heads: int | None = None) -> Placement:
    """The largest groups that stay within the best links this machine has; what they leave over runs as it is.

    Without NVLink that is one GPU a group: over PCIe, replicas and pipeline stages pay, tensor parallelism does not.
    """
    best = placement(topology, 1, heads=heads)
    for each in placements(topology, heads=heads):
        if each.possible and all(link is None or link.kind is LinkKind.NVLINK for link in each.links):
            used, most = len(each.groups) * each.tensor, len(best.groups) * best.tensor if best.tensor > 1 else 0
            if used >= most:
                best = each
    return best


def _groups(topology: Topology, size: int) -> tuple[tuple[tuple[int, ...], ...], tuple[int, ...]]:
    """Disjoint sets of `size`, the best linked first. (groups, GPUs left over)

    Best first is what matters: the first replica gets the best set, and no set is worse than it must be given those
    before it. Where NVLink joins only some of the GPUs, sets that would mix are not formed while a good one is left.
    """
    left = list(range(topology.gpus))
    groups: list[tuple[int, ...]] = []
    every = size == 1 or topology.uniform or topology.gpus > _TRY_ALL
    floor: LinkKind | None = None
    while len(left) >= size:
        if every:
            best = tuple(left[:size])
        else:
            best = min(combinations(left, size), key=lambda group: _cost(topology, group))
        weakest = topology.weakest(best)
        if weakest is not None:
            if floor is LinkKind.NVLINK and weakest.kind is not LinkKind.NVLINK:
                break  # the rest of a machine that is linked by NVLink in part: better on its own
            floor = weakest.kind
        groups.append(best)
        left = [gpu for gpu in left if gpu not in best]
    return tuple(groups), tuple(left)


def _cost(topology: Topology, group: tuple[int, ...]) -> tuple[tuple[int, int], int, int, tuple[int, ...]]:
    """Worst link first; then all links together, sockets, and the lowest numbers."""
    weakest = topology.weakest(group)
    assert weakest is not None
    together = sum(topology.link(a, b).kind for a, b in combinations(group, 2))
    return weakest.rank, together, len({topology.numa[gpu] for gpu in group}), group


def _warnings(topology: Topology, groups: tuple[tuple[int, ...], ...], links: tuple[Link | None, ...]) -> list[str]:
    found = []
    for group, link in zip(groups, links, strict=True):
        names = ",".join(map(str, group))
        if link is None:
            continue
        if link.kind is LinkKind.SYS:
            found.append(f"{{{names}}} crosses the sockets (SYS): every layer's AllReduce pays that hop")
        elif link.kind is LinkKind.NO_PEER:
            found.append(f"{{{names}}} have no peer access: every AllReduce is copied through the host's memory")
        elif link.kind is not LinkKind.NVLINK:
            found.append(f"{{{names}}} are joined by PCIe only ({link.name}): prefer pipeline stages or replicas")
        elif not topology.uniform and len({topology.link(a, b).lanes for a, b in combinations(group, 2)}) > 1:
            found.append(f"{{{names}}} are joined by unequal numbers of NVLinks; the fewest ({link.name}) decide")
    return found
