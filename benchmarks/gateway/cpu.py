"""Processor time of a process tree from /proc/PID/stat.

User and system time of every live process below and including the root (the kernel sums a process's threads), and of
their children that ended and were waited for. The kernel keeps the sum exactly and reports it in ticks of 10 ms, each
number rounded down: over a measurement of 5 s at full use the error is below 1 %.
"""

from __future__ import annotations

import os
from pathlib import Path

_TICK = 1.0 / os.sysconf("SC_CLK_TCK")


def _stats() -> dict[int, tuple[int, int]]:
    """pid → (parent, ticks) for every process that can be read."""
    found: dict[int, tuple[int, int]] = {}
    for entry in os.scandir("/proc"):
        if not entry.name.isdigit():
            continue
        try:
            text = Path(entry.path, "stat").read_text()
        except OSError:
            continue  # gone since the listing
        fields = text[text.rindex(")") + 2 :].split()  # the name before it may hold spaces
        found[int(entry.name)] = (int(fields[1]), sum(map(int, fields[11:15])))
    return found


def tree(root: int, stats: dict[int, tuple[int, int]] | None = None) -> list[int]:
    stats = _stats() if stats is None else stats
    members = [root] if root in stats else []
    for parent in members:  # grows while we walk it
        members.extend(pid for pid, (above, _) in stats.items() if above == parent)
    return members


def cpu_seconds(root: int) -> float:
    """Seconds of processor time that the tree under `root` has used so far."""
    stats = _stats()
    return sum(stats[pid][1] for pid in tree(root, stats)) * _TICK


def peak_rss_mib(root: int) -> float:
    """Sum over the tree of the largest resident set that each process had, MiB (shared pages are counted twice)."""
    total = 0
    for pid in tree(root):
        try:
            for line in Path(f"/proc/{pid}/status").read_text().splitlines():
                if line.startswith("VmHWM:"):
                    total += int(line.split()[1])
        except OSError:
            continue
    return total / 1024
