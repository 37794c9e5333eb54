"""Which cluster file is in force, and how the last attempts to take over another one went."""

from __future__ import annotations

from dataclasses import dataclass, field
from time import time  # noqa: TID251  # dates for people, no durations
from typing import Any

from kilocard.metrics import names
from kilocard.metrics.render import Registry


@dataclass(slots=True)
class ConfigStatus:
    """`file` is None for a cluster that came from no file. Times are Unix seconds: people compare them with a clock."""

    file: str | None = None
    #: rises with each change that was taken over
    generation: int = 1
    #: of the file's content, and of the files that it extends
    hash: str = ""
    loaded_at: float = field(default_factory=time)
    successes: int = 0
    failures: int = 0
    #: what is wrong with the file as it is now; None: what it says is in force
    error: str | None = None
    #: keys that differ from what is in force until the process is restarted
    restart: list[str] = field(default_factory=list)

    def took_over(self, hash: str, restart: list[str], *, changed: bool) -> None:
        """The file is good and in force."""
        self.successes += 1
        self.generation += changed
        self.hash = hash
        self.loaded_at = time()
        self.error = None
        self.restart = restart

    def refused(self, error: str) -> None:
        """The file is bad, and what was in force stays."""
        self.failures += 1
        self.error = error

    def view(self) -> dict[str, Any]:
        """For /state."""
        return {
            "file": self.file,
            "generation": self.generation,
            "hash": self.hash,
            "loaded_at": round(self.loaded_at, 3),
            "failures": self.failures,
            "error": self.error,
            "needs_restart": self.restart,
        }


def export(status: ConfigStatus, registry: Registry) -> None:
    """Put it on the metrics page."""
    reloads = registry.counter(names.CONFIG_RELOADS)
    loaded_at = registry.gauge(names.CONFIG_LOADED_AT).only
    last_ok = registry.gauge(names.CONFIG_LAST_OK).only
    generation = registry.gauge(names.CONFIG_GENERATION).only
    info = registry.gauge(names.CONFIG_INFO)

    def refresh() -> None:
        reloads.labels("ok").value = status.successes
        reloads.labels("failed").value = status.failures
        loaded_at.set(status.loaded_at)
        last_ok.set(0 if status.error else 1)
        generation.set(status.generation)
        info.children.clear()
        info.labels(status.hash).set(1)

    registry.before_page.append(refresh)
