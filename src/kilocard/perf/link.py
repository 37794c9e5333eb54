"""What GPUs pay to talk: AllReduce of tensor parallelism, all-to-all of expert parallelism, stages of a pipeline.

A collective of n GPUs takes a latency for each of its log2(n) rounds and its bytes over the slowest link. Numbers are
one GPU's: bandwidth in one direction, GB/s (10^9), what collectives reach of it, and seconds a round.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from kilocard.core.errors import UsageError
from kilocard.perf.gpus import Gpu


@dataclass(frozen=True, slots=True)
class Link:
    """How the GPUs of one group are joined. `source` says where latency and efficiency come from."""

    name: str
    #: one direction, GB/s
    bandwidth_gb_s: float
    #: what a collective reaches of it, a share
    efficiency: float
    #: a round of a collective, seconds
    latency_s: float
    source: str = ""

    @property
    def bytes_per_s(self) -> float:
        return self.bandwidth_gb_s * 1e9 * self.efficiency

    def all_reduce_s(self, size: float, gpus: int) -> float:
        """Sum `size` bytes over `gpus`: latency of its rounds, and 2 (n − 1)/n of the bytes through each GPU's link."""
        if gpus < 2:
            return 0.0
        return self.rounds_s(gpus) + 2 * (gpus - 1) / gpus * size / self.bytes_per_s

    def all_to_all_s(self, size: float, gpus: int) -> float:
        """Each GPU sends `size` bytes, spread evenly over the others."""
        if gpus < 2:
            return 0.0
        return self.rounds_s(gpus) + (gpus - 1) / gpus * size / self.bytes_per_s

    def send_s(self, size: float) -> float:
        """One GPU to one other."""
        return self.latency_s + size / self.bytes_per_s

    def rounds_s(self, gpus: int) -> float:
        """The latency of one collective among so many GPUs."""
        return self.latency_s * math.log2(gpus) if gpus > 1 else 0.0


NVLINK = Link(
    "nvlink", 450, 0.55, 5e-6,
    "latency and efficiency fitted on public vLLM, SGLang and TensorRT-LLM curves of 1 to 8 Hopper and Blackwell GPUs",
)  # fmt: skip
PCIE = Link(
    "pcie", 32, 0.6, 15e-6,
    "assumed: AllReduce through PCIe reaches 10 to 20 GB/s on a 32 GB/s slot (nccl-tests reports), 15 µs a round",
)  # fmt: skip
PCIE_SOCKETS = Link(
    "pcie-sockets", 32, 0.3, 25e-6,
    "assumed: half of PCIe's share and a longer way when the traffic crosses the link between two sockets",
)  # fmt: skip
RDMA = Link("rdma", 12.5, 0.85, 20e-6, "assumed: 100 Gbit/s InfiniBand or RoCE with GPUDirect, 20 µs a round")
ETHERNET = Link("ethernet", 3.125, 0.7, 80e-6, "assumed: 25 Gbit/s TCP sockets, 80 µs a round (NCCL's socket path)")

LINKS = {link.name: link for link in (NVLINK, PCIE, PCIE_SOCKETS, RDMA, ETHERNET)}


def link(name: str, *, gbit_s: float | None = None) -> Link:
    """A link by name; `gbit_s` is the speed on a network card's label. Raises UsageError that lists the names."""
    try:
        found = LINKS[name]
    except KeyError:
        raise UsageError(f"link {name!r} is not known; there are {', '.join(LINKS)}") from None
    return found if gbit_s is None else replace(found, bandwidth_gb_s=gbit_s / 8)


def inside(gpu: Gpu) -> Link:
    """How the GPUs of one machine are joined when nobody says: NVLink if the card has it, else PCIe."""
    if gpu.nvlink_gb_s:
        # the catalogue counts both directions together, as vendors do
        return replace(NVLINK, bandwidth_gb_s=gpu.nvlink_gb_s / 2)
    return replace(PCIE, bandwidth_gb_s=gpu.pcie_gb_s)


def bubble(stages: int, micro_batches: int) -> float:
    """Share of the time in which a pipeline's stages stand idle: (stages − 1)/(micro-batches + stages − 1)."""
    if stages < 1 or micro_batches < 1:
        raise ValueError("a pipeline has at least one stage and one micro-batch")
    return (stages - 1) / (micro_batches + stages - 1)
