"""Which GPUs this machine has for us, and who holds which. Two replicas never share one."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from kilocard.core.errors import GpuShortage

#: seconds; a driver in trouble can hang nvidia-smi for minutes
LIST_TIMEOUT = 15.0
_LINE = re.compile(r"^GPU (\d+): (.*?)(?: \(UUID: (GPU-[^)]*)\))?\s*$")


@dataclass(frozen=True, slots=True)
class Gpu:
    index: int
    name: str = ""
    uuid: str = ""


@dataclass(frozen=True, slots=True)
class Inventory:
    """GPUs that we may use, in the order of CUDA_VISIBLE_DEVICES where that is set; `note` says how we know."""

    gpus: tuple[Gpu, ...]
    note: str


def parse_list(text: str) -> tuple[Gpu, ...]:
    """The output of `nvidia-smi -L`. MIG lines are skipped: they are parts of a GPU, listed below it."""
    found = (_LINE.match(line) for line in text.splitlines())
    return tuple(Gpu(int(m[1]), m[2], m[3] or "") for m in found if m)


def visible(gpus: tuple[Gpu, ...] | None, setting: str | None) -> Inventory:
    """What is left of the machine's GPUs (None: nvidia-smi is missing or failed) under CUDA_VISIBLE_DEVICES.

    As CUDA does: the list ends at the first entry that names no GPU, so "-1" or "" hides all. UUIDs may be
    shortened. Without nvidia-smi plain indices are believed.
    """
    if setting is None:
        if gpus is None:
            return Inventory((), "nvidia-smi finds none")
        return Inventory(gpus, "as nvidia-smi lists them")
    chosen: list[Gpu] = []
    for entry in (part.strip() for part in setting.split(",")):
        gpu = _named(entry, gpus)
        if gpu is None or gpu in chosen:
            break
        chosen.append(gpu)
    return Inventory(tuple(chosen), f"CUDA_VISIBLE_DEVICES is {setting!r}")


def _named(entry: str, gpus: tuple[Gpu, ...] | None) -> Gpu | None:
    if entry.isdecimal():
        if gpus is None:
            return Gpu(int(entry))
        return next((gpu for gpu in gpus if gpu.index == int(entry)), None)
    if not entry.startswith("GPU-"):
        return None
    matches = [gpu for gpu in gpus or () if gpu.uuid.startswith(entry)]
    return matches[0] if len(matches) == 1 else None


def discover(env: Mapping[str, str], run: Callable[[], str] | None = None) -> Inventory:
    """Asks nvidia-smi (blocking, up to 15 s). `env` is our own environment; `run` gives the text instead, in tests."""
    try:
        gpus: tuple[Gpu, ...] | None = parse_list((run or _nvidia_smi)())
    except (OSError, subprocess.SubprocessError):
        gpus = None
    return visible(gpus, env.get("CUDA_VISIBLE_DEVICES"))


def _nvidia_smi() -> str:
    argv = ["nvidia-smi", "-L"]  # the user's own driver tool, wherever the distribution puts it
    return subprocess.run(argv, capture_output=True, text=True, timeout=LIST_TIMEOUT, check=True).stdout


class GpuLedger:
    """Who holds which GPUs."""

    def __init__(self, inventory: Inventory) -> None:
        self.inventory = inventory
        self._holder: dict[int, str] = {}

    def free(self) -> tuple[int, ...]:
        return tuple(gpu.index for gpu in self.inventory.gpus if gpu.index not in self._holder)

    def take(self, replica: str, pool: str, count: int) -> tuple[int, ...]:
        """`count` neighbouring GPUs for this replica alone; () for 0.

        Neighbours, since the links inside a server are best between them. Of the gaps that are wide enough the
        narrowest is used, so that wide ones stay for wide groups. Raises GpuShortage.
        """
        if count == 0:
            return ()
        gaps = [gap for gap in self._gaps() if len(gap) >= count]
        if not gaps:
            raise GpuShortage(self._shortage(pool, count))
        group = tuple(min(gaps, key=len)[:count])
        for index in group:
            self._holder[index] = replica
        return group

    def give_back(self, replica: str) -> None:
        for index in [index for index, holder in self._holder.items() if holder == replica]:
            del self._holder[index]

    def _gaps(self) -> list[list[int]]:
        gaps: list[list[int]] = [[]]
        for gpu in self.inventory.gpus:
            if gpu.index in self._holder:
                gaps.append([])
            else:
                gaps[-1].append(gpu.index)
        return gaps

    def _shortage(self, pool: str, count: int) -> str:
        total, free = len(self.inventory.gpus), self.free()
        wanted = "1 GPU" if count == 1 else f"{count} GPUs"
        if not total:
            return (
                f"pool {pool}: a replica needs {wanted}, but this machine has none ({self.inventory.note}). "
                "Use a machine with GPUs, or an engine that runs without"
            )
        held: dict[str, list[int]] = {}
        for index, holder in sorted(self._holder.items()):
            held.setdefault(holder, []).append(index)
        who = "; ".join(f"{holder} holds {_numbers(indices)}" for holder, indices in held.items()) or "nobody holds any"
        if count > total:
            what = "Lower gpus.tensor × gpus.pipeline, or use a larger machine"
        elif len(free) >= count:
            what = "The free ones are not neighbours: stop a replica between them, or start wide pools first"
        else:
            what = "Lower replicas.min, stop a replica, or use more machines"
        return (
            f"pool {pool}: a replica needs {wanted}, {len(free)} of {total} free"
            f"{f' ({_numbers(free)})' if free else ''}: {who}. {what}"
        )


def _numbers(indices: tuple[int, ...] | list[int]) -> str:
    return ("GPU " if len(indices) == 1 else "GPUs ") + ",".join(str(index) for index in indices)
