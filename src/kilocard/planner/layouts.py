"""Every way to spread one replica over GPUs that is worth a look, and why the others are not."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from kilocard.perf.architecture import Architecture
from kilocard.perf.layout import Layout
from kilocard.planner.machine import Machines

#: pipelines longer than this fill with bubbles before they fill with work
_LONGEST_PIPELINE = 8
#: kinds of attention whose cache is one vector for all heads
_LATENT = frozenset({"mla", "compressed"})


@dataclass(frozen=True, slots=True)
class Pins:
    """What somebody has decided already; None: open."""

    tensor: int | None = None
    pipeline: int | None = None
    expert: bool | None = None


def layouts(architecture: Architecture, machines: Machines, pins: Pins) -> Iterator[Layout]:
    """Tensor sizes stay within a machine unless pinned; pipelines may cross machines where a network is given.

    Whether a layout is possible for the model (heads, memory) is perf.memory's to say.
    """
    most = machines.most
    yield from _data_parallel(architecture, machines, pins)
    for tensor in [pins.tensor] if pins.tensor is not None else _sizes(machines.per_node):
        for pipeline in [pins.pipeline] if pins.pipeline is not None else range(1, _LONGEST_PIPELINE + 1):
            gpus = tensor * pipeline
            pinned = pins.tensor is not None and pins.pipeline is not None
            if not pinned:
                if most is not None and gpus > most:
                    continue
                if gpus > machines.per_node and (machines.network_gbit_s is None or gpus % machines.per_node):
                    continue
                if pipeline > architecture.layers or (pins.pipeline is None and pipeline & (pipeline - 1)):
                    continue  # powers of two: others leave GPUs of a machine over
            yield Layout(tensor=tensor, pipeline=pipeline, expert=1)
            if architecture.experts is not None and tensor > 1 and pins.expert is not False:
                yield Layout(tensor=tensor, pipeline=pipeline, expert=tensor)


def _data_parallel(architecture: Architecture, machines: Machines, pins: Pins) -> Iterator[Layout]:
    """For latent attention with one KV head tensor parallelism keeps a copy of the cache on every GPU. Instead each
    GPU does attention for requests of its own, and the experts are shared out over all."""
    latent = any(group.kind in _LATENT for group in architecture.layer_groups)
    if not latent or architecture.experts is None or pins.expert is False or pins.tensor or pins.pipeline:
        return
    for data in _sizes(machines.per_node):
        if data > 1 and (machines.most is None or data <= machines.most):
            yield Layout(data=data, expert=data)


def _sizes(per_node: int) -> list[int]:
    """1, 2, 4 … and whatever else divides the machine without rest (TP3 and TP6 where there are as many)."""
    powers = [2**i for i in range(per_node.bit_length()) if 2**i <= per_node]
    return sorted({*powers, *(n for n in range(1, per_node + 1) if per_node % n == 0)})
