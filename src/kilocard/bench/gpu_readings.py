"""GPU memory and utilisation out of what nvidia-smi or a DCGM exporter says. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from kilocard.metrics.exact import Sample, parse

#: the fields of parse_smi, in its order; numbers only, MiB and percent
SMI_QUERY = ("--query-gpu=index,memory.used,utilization.gpu", "--format=csv,noheader,nounits")
_MIB_PER_GIB = 1024.0

_DCGM_MEMORY = "DCGM_FI_DEV_FB_USED"
#: share 0 to 1 of the time that any engine was busy; profiling counters are not always on
_DCGM_ACTIVE = "DCGM_FI_PROF_GR_ENGINE_ACTIVE"
#: the same in percent
_DCGM_BUSY = "DCGM_FI_DEV_GPU_UTIL"


class GpuReading(NamedTuple):
    """One GPU, or several together. None: not said, as for the utilisation of a GPU in MIG mode."""

    memory_gib: float | None
    #: share of the time in which something ran, 0 to 1
    busy: float | None


NOTHING = GpuReading(None, None)


def parse_smi(line: str) -> tuple[int, GpuReading] | None:
    """(index, reading) of one line, as in "0, 38742, 97"; None for anything else, such as an error in words."""
    fields = [field.strip() for field in line.split(",")]
    if len(fields) != 3 or not fields[0].isdecimal():
        return None
    memory, busy = _number(fields[1]), _number(fields[2])
    return int(fields[0]), GpuReading(
        None if memory is None else memory / _MIB_PER_GIB, None if busy is None else busy / 100.0
    )


def parse_dcgm(page: bytes) -> GpuReading:
    """All GPUs on the exporter's page together. Raises NotExposition."""
    samples = parse(page).samples
    active = _values(samples, _DCGM_ACTIVE) or [busy / 100.0 for busy in _values(samples, _DCGM_BUSY)]
    memory = _values(samples, _DCGM_MEMORY)
    return GpuReading(
        sum(memory) / _MIB_PER_GIB if memory else None,
        min(1.0, sum(active) / len(active)) if active else None,
    )


def all_gpus(readings: Iterable[GpuReading]) -> GpuReading:
    """Memory summed, busy share averaged, over the GPUs that say so."""
    readings = list(readings)
    memory = [reading.memory_gib for reading in readings if reading.memory_gib is not None]
    busy = [reading.busy for reading in readings if reading.busy is not None]
    return GpuReading(sum(memory) if memory else None, sum(busy) / len(busy) if busy else None)


def _values(samples: Iterable[Sample], name: str) -> list[float]:
    return [sample.value for sample in samples if sample.name == name and 0.0 <= sample.value < float("inf")]


def _number(text: str) -> float | None:
    """ "[N/A]", "[Not Supported]" and "[Unknown Error]" are no numbers."""
    return float(text) if text.isdecimal() else None
