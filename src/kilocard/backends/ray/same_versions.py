"""Are the nodes of a cluster the same where they must be? Pure.

One machine of twelve with another driver gave illegal memory accesses that looked like a fault of the model. So what
has to be equal is compared before anything starts, and the error names the node that differs and in what.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from kilocard.core.errors import BackendError

#: what the software facts are called for people, in the order in which they are told
TITLES = {
    "ray": "Ray",
    "python": "Python",
    "kilocard": "kilocard",
    "driver": "NVIDIA driver",
    "cuda": "CUDA that the driver supports",
}


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """What one node says of itself. A fact that could not be found out is left out: unknown is not different."""

    #: as people know it: "gpu-07 (10.0.0.7)"
    node: str
    #: fact → version: "ray", "python", "kilocard", "driver", "cuda"
    versions: Mapping[str, str]
    #: pool → distribution → version, for pools that may run here: {"chat": {"vllm": "0.32.0", "torch": "2.13.0"}}
    engines: Mapping[str, Mapping[str, str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Difference:
    """One fact that is not the same everywhere."""

    what: str
    #: the version that most nodes have (of equally many: that of the first node)
    usual: str
    #: node → its other version
    others: Mapping[str, str]
    #: nodes with the usual one
    count: int

    def __str__(self) -> str:
        odd = ", ".join(f"{version} on {node}" for node, version in self.others.items())
        nodes = "node" if self.count == 1 else "nodes"
        return f"{self.what}: {self.usual} on {self.count} {nodes}, but {odd}"


def differences(facts: Sequence[NodeFacts]) -> list[Difference]:
    """All facts that differ between nodes which know them, with the pools' engines after the rest."""
    found = [_compare(title, {one.node: one.versions.get(name) for one in facts}) for name, title in TITLES.items()]
    for pool in sorted({pool for one in facts for pool in one.engines}):
        here = [one for one in facts if pool in one.engines]
        for distribution in sorted({name for one in here for name in one.engines[pool]}):
            versions = {one.node: one.engines[pool].get(distribution) for one in here}
            found.append(_compare(f"{distribution} of pool {pool}", versions))
    return [difference for difference in found if difference is not None]


def check(facts: Sequence[NodeFacts]) -> None:
    """Raises BackendError that says which node differs in what."""
    found = differences(facts)
    if found:
        raise BackendError(
            "the nodes differ, so nothing is started on them. "
            + "; ".join(map(str, found))
            + ". Install the same everywhere (the same image is the simplest), or take the node out of the cluster"
        )


def _compare(what: str, versions: Mapping[str, str | None]) -> Difference | None:
    known = {node: version for node, version in versions.items() if version}
    counts = Counter(known.values())
    if len(counts) < 2:
        return None
    usual = counts.most_common(1)[0][0]
    others = {node: version for node, version in known.items() if version != usual}
    return Difference(what, usual, others, counts[usual])
