"""One pool as a policy sees it: replicas by phase, and which gauges can be believed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kilocard.core.signals import Phase, PoolSignals, ReplicaSignals

#: so many scrape periods old, a reading says nothing of the present any more
PERIODS = 3.0
#: of a big pool this share may be silent and the rest still be believed; a silent one counts as loaded to the brim
SILENT_SHARE = 0.02


@dataclass(frozen=True, slots=True)
class View:
    """`signals` is None where there are none, or too old ones."""

    signals: PoolSignals | None
    ready: tuple[ReplicaSignals, ...]
    coming: tuple[ReplicaSignals, ...]
    pending: tuple[ReplicaSignals, ...]
    failing: tuple[ReplicaSignals, ...]
    draining: int
    #: gauges older than this are not believed
    fresh_s: float

    @classmethod
    def of(cls, signals: PoolSignals | None, replicas: Sequence[ReplicaSignals], scrape_s: float) -> View:
        """`coming` are those that start and load; `pending` those that wait for a GPU."""
        fresh_s = max(PERIODS * scrape_s, PERIODS)
        by: dict[Phase, list[ReplicaSignals]] = {phase: [] for phase in Phase}
        for replica in replicas:
            by[replica.phase].append(replica)
        return cls(
            signals if signals is not None and signals.age_s <= fresh_s else None,
            tuple(by[Phase.READY]),
            tuple(by[Phase.STARTING] + by[Phase.LOADING]),
            tuple(by[Phase.PENDING]),
            tuple(by[Phase.FAILING]),
            len(by[Phase.DRAINING]),
            fresh_s,
        )

    @property
    def have(self) -> int:
        """Replicas that the pool has, whether they serve yet or not; those that leave do not count."""
        return self.serving + len(self.failing)

    @property
    def serving(self) -> int:
        """Those that serve, and those that will when they have started."""
        return len(self.ready) + len(self.coming) + len(self.pending)

    def silent(self, gauge: Callable[[ReplicaSignals], float | None]) -> tuple[ReplicaSignals, ...]:
        """Replicas that serve and whose gauge is missing or old."""
        return tuple(
            each for each in self.ready if each.age_s is None or each.age_s > self.fresh_s or gauge(each) is None
        )

    def believed(self, gauge: Callable[[ReplicaSignals], float | None]) -> bool:
        """Enough is known to remove a replica on the ground of this gauge."""
        silent = len(self.silent(gauge))
        return self.signals is not None and silent <= SILENT_SHARE * len(self.ready)


def per(total: float, replicas: int) -> float:
    """On average; a pool without replicas carries it all on one that it will have."""
    return total / max(1, replicas)
