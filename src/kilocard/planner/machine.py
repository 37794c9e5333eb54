"""The machines to plan for: how many GPUs each, how they are linked, and the network between them."""

from __future__ import annotations

from dataclasses import dataclass, replace

from kilocard.core.errors import PlanError, UsageError
from kilocard.perf.gpus import Gpu
from kilocard.perf.layout import Layout
from kilocard.perf.link import NVLINK, PCIE, PCIE_SOCKETS, Link, inside, link
from kilocard.planner.placement import placement
from kilocard.planner.topology import LinkKind, Topology

#: words of --link
LINKS = ("nvlink", "pcie")


@dataclass(frozen=True, slots=True)
class Machines:
    """`gpus` and `nodes` None: as many as it takes."""

    #: in all
    gpus: int | None = None
    nodes: int | None = None
    per_node: int = 8
    #: nvlink, pcie; None: what the GPU usually has
    link: str | None = None
    #: Gbit/s between machines, and whether it is RDMA; None: no parallel group crosses machines
    network_gbit_s: float | None = None
    rdma: bool = False
    topology: Topology | None = None

    def __post_init__(self) -> None:
        if self.link is not None and self.link not in LINKS:
            raise UsageError(f"--link {self.link!r}: write one of {', '.join(LINKS)}")
        for name, value in (("--gpus", self.gpus), ("--nodes", self.nodes), ("GPUs of a node", self.per_node)):
            if value is not None and value < 1:
                raise UsageError(f"{name} {value}: at least 1")

    @property
    def most(self) -> int | None:
        """GPUs that there are; None: no bound."""
        bounds = [self.gpus, self.nodes * self.per_node if self.nodes is not None else None]
        return min((bound for bound in bounds if bound is not None), default=None)

    def has_nvlink(self, gpu: Gpu) -> bool:
        return self.link == "nvlink" or (self.link is None and gpu.nvlink_gb_s > 0)

    def group_link(self, gpu: Gpu, tensor: int) -> Link:
        """What joins the GPUs of a tensor-parallel group. Raises PlanError where a machine has no such group."""
        if self.topology is not None and tensor <= self.topology.gpus:
            found = placement(self.topology, tensor)
            # replicas are alike: the group that is worst linked decides
            return _link(max((link.kind for link in found.links if link is not None), default=LinkKind.NVLINK), gpu)
        if tensor > self.per_node:
            return self.network()
        if self.has_nvlink(gpu):
            return _link(LinkKind.NVLINK, gpu)
        # two sockets with half of the cards each, as servers are built
        return _link(LinkKind.SYS if tensor > max(1, self.per_node // 2) else LinkKind.PHB, gpu)

    def between(self, gpu: Gpu, layout: Layout) -> Link:
        """What joins pipeline stages, and the ranks that experts are shared out over."""
        if layout.gpus > self.per_node:
            return self.network()
        return self.group_link(gpu, min(layout.gpus, self.per_node))

    def network(self) -> Link:
        """What joins machines. Raises PlanError where nobody said how fast it is."""
        if self.network_gbit_s is None:
            raise PlanError(f"more GPUs than a machine's {self.per_node}, and no --network to join machines with")
        return link("rdma" if self.rdma else "ethernet", gbit_s=self.network_gbit_s)

    def groups(self, tensor: int) -> int:
        """Groups of `tensor` GPUs that one machine holds."""
        if self.topology is not None:
            return len(placement(self.topology, tensor).groups)
        return self.per_node // tensor


def _link(kind: LinkKind, gpu: Gpu) -> Link:
    if kind is LinkKind.NVLINK:
        return inside(gpu) if gpu.nvlink_gb_s else NVLINK
    return replace(PCIE_SOCKETS if kind >= LinkKind.SYS else PCIE, bandwidth_gb_s=gpu.pcie_gb_s)
