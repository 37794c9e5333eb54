"""What `nvidia-smi topo -m` says about one machine: how its GPUs are linked, and which network cards are near which.

Both forms of the matrix are read: `topo -m` (kinds of link) and `topo -p2p rw` (may two GPUs read each other's memory).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import IntEnum
from itertools import combinations

from kilocard.core.errors import SpecError


class LinkKind(IntEnum):
    """How two devices reach each other; a smaller number is a shorter way."""

    NVLINK = 0
    #: at most one PCIe bridge (a switch)
    PIX = 1
    #: several PCIe bridges, no host bridge
    PXB = 2
    #: through the CPU's PCIe host bridge
    PHB = 3
    #: between host bridges of one NUMA node
    NODE = 4
    #: between sockets (QPI, UPI, Infinity Fabric); SOC in old drivers
    SYS = 5
    #: the GPUs may not read each other's memory: every byte is copied through the host's
    NO_PEER = 6


@dataclass(frozen=True, slots=True)
class Link:
    kind: LinkKind
    #: bonded NVLinks, the 12 of NV12; 0 for other kinds
    lanes: int = 0

    @property
    def name(self) -> str:
        """As nvidia-smi prints it."""
        return f"NV{self.lanes}" if self.kind is LinkKind.NVLINK else self.kind.name

    @property
    def rank(self) -> tuple[int, int]:
        """Smaller is better: the kind, then more NVLinks before fewer."""
        return self.kind, -self.lanes


@dataclass(frozen=True, slots=True)
class Nic:
    name: str
    #: GPU index → how it reaches this card
    links: dict[int, Link]

    def near(self) -> tuple[int, ...]:
        """GPUs that reach the card without passing a CPU (PIX, PXB): GPUDirect RDMA is worth it from there."""
        return tuple(gpu for gpu, link in sorted(self.links.items()) if link.kind <= LinkKind.PXB)


@dataclass(frozen=True, slots=True)
class Topology:
    """One machine. GPUs are numbers 0 … gpus−1, in the matrix's order."""

    gpus: int
    #: (a, b) with a < b → link
    links: dict[tuple[int, int], Link]
    #: NUMA node of each GPU; None: not said
    numa: tuple[int | None, ...]
    nics: tuple[Nic, ...] = ()
    #: what was odd, for the reader
    notes: tuple[str, ...] = field(default=())

    def link(self, a: int, b: int) -> Link:
        return self.links[min(a, b), max(a, b)]

    def weakest(self, group: Iterable[int]) -> Link | None:
        """The worst link between any two of the group: what its AllReduce waits for. None for a single GPU."""
        return max(
            (self.link(a, b) for a, b in combinations(sorted(group), 2)), key=lambda link: link.rank, default=None
        )

    @property
    def uniform(self) -> bool:
        """Every pair of GPUs is linked alike (an NVSwitch machine, or a plain PCIe one)."""
        return len(set(self.links.values())) <= 1

    def islands(self, kind: LinkKind) -> list[tuple[int, ...]]:
        """The GPUs in sets whose members all reach each other by `kind` or better.

        Largest set first; every GPU is in exactly one. Sets are complete: two GPUs that meet only by way of a third
        (hybrid cube meshes) are not in one.
        """
        left = list(range(self.gpus))
        found = []
        while left:
            best: tuple[int, ...] = ()
            for start in left:
                members = [start]
                for other in left:
                    if other != start and all(self.link(other, member).kind <= kind for member in members):
                        members.append(other)
                if len(members) > len(best):
                    best = tuple(sorted(members))
            found.append(best)
            left = [gpu for gpu in left if gpu not in best]
        return found


_ANSI = re.compile(r"\x1b\[[0-9;]*m")
_GPU = re.compile(r"GPU(\d+)")
_HEADINGS = re.compile(r"\b(CPU Affinity|NUMA Affinity|GPU NUMA ID)\b")
_NVLINK = re.compile(r"NV(\d+)")
_NO_PEER = {"CNS", "GNS", "TNS", "NS", "DR", "U", "N/A"}
_SELF = Link(LinkKind.NVLINK)


def parse_topology(text: str) -> Topology:
    """Read the matrix; legend and rows of network cards may be missing. Raises SpecError that says what is wrong."""
    lines = [(number, _ANSI.sub("", line).rstrip()) for number, line in enumerate(text.splitlines(), 1)]
    start = next((i for i, (_, line) in enumerate(lines) if line.split()[:1] == ["GPU0"]), None)
    if start is None:
        raise SpecError("topology: no line begins with the columns GPU0, GPU1 …; give what `nvidia-smi topo -m` prints")
    columns = _HEADINGS.sub("", lines[start][1]).split()
    gpu_columns = [i for i, name in enumerate(columns) if _GPU.fullmatch(name)]
    gpus = len(gpu_columns)
    cells: dict[str, list[Link]] = {}
    numa: dict[str, int | None] = {}
    for number, line in lines[start + 1 :]:
        words = line.split()
        if not words:
            if cells:
                break  # the legend follows
            continue
        if words[0] not in columns:
            break
        if words[0] in cells:
            raise SpecError(f"topology, line {number}: a second row for {words[0]}")
        if len(words) <= len(columns):
            raise SpecError(
                f"topology, line {number}: {words[0]} has {len(words) - 1} links for {len(columns)} devices; "
                "is the line cut off?"
            )
        cells[words[0]] = [_link(word, number) for word in words[1 : len(columns) + 1]]
        numa[words[0]] = _numa(words[len(columns) + 1 :])
    names = [columns[i] for i in gpu_columns]
    missing = [name for name in names if name not in cells]
    if missing:
        raise SpecError(f"topology: no row for {', '.join(missing)}; is the text cut off?")
    links = _links(names, gpu_columns, cells)
    nics = tuple(
        Nic(name, {gpu: cells[row][i] for gpu, row in enumerate(names)})
        for i, name in enumerate(columns)
        if i not in gpu_columns
    )
    return Topology(gpus, links, tuple(numa[name] for name in names), nics, _notes(links))


def _links(names: list[str], columns: list[int], cells: dict[str, list[Link]]) -> dict[tuple[int, int], Link]:
    links = {}
    for a, b in combinations(range(len(names)), 2):
        there, back = cells[names[a]][columns[b]], cells[names[b]][columns[a]]
        if there != back:
            raise SpecError(
                f"topology: {names[a]} to {names[b]} is {there.name}, the way back is {back.name}; "
                "the two halves of the matrix must agree"
            )
        links[a, b] = there
    return links


def _link(word: str, line: int) -> Link:
    match = _NVLINK.fullmatch(word)
    if match:
        return Link(LinkKind.NVLINK, int(match[1]))
    if word == "X":
        return _SELF
    if word == "SOC":
        return Link(LinkKind.SYS)
    if word == "OK":  # `topo -p2p`: peers, by a way that it does not name; PIX would promise too much
        return Link(LinkKind.PHB)
    if word in _NO_PEER:
        return Link(LinkKind.NO_PEER)
    if word in LinkKind.__members__:
        return Link(LinkKind[word])
    raise SpecError(f"topology, line {line}: {word!r} is no kind of link; known are NV#, PIX, PXB, PHB, NODE, SYS")


def _numa(rest: list[str]) -> int | None:
    """The words after the links: CPU affinity, NUMA affinity, …; either may be missing or N/A."""
    if len(rest) < 2:
        return None
    match = re.match(r"\d+", rest[1])
    return int(match[0]) if match else None


def _notes(links: dict[tuple[int, int], Link]) -> tuple[str, ...]:
    if any(link.kind is LinkKind.NO_PEER for link in links.values()):
        return (
            "GPUs may not read each other's memory (consumer cards, or IOMMU/ACS on): traffic goes through the host's",
        )
    return ()
