"""A budget of one calendar period: what was used, what is held by requests that run, what is not saved yet."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol


class BudgetKey(NamedTuple):
    tenant: str
    #: "": all models together
    model: str
    #: a day (`2026-11-29`) or a month (`2026-11`), UTC
    period: str


class Budget:
    """Tokens of one period. Only what is settled is ever saved, so a crash leaves nothing reserved for ever."""

    __slots__ = ("held", "key", "settled")

    def __init__(self, key: BudgetKey, settled: int) -> None:
        self.key = key
        self.settled = settled
        self.held = 0

    @property
    def used(self) -> int:
        return self.settled + self.held

    def settle(self, reserved: int, used: int) -> None:
        self.held -= reserved
        self.settled += used


class BudgetStore(Protocol):
    """Where budgets outlive the process. Blocking: called in a thread. Raises StoreError."""

    def load(self, wall: float) -> dict[BudgetKey, int]:
        """All that is kept of periods that are not over. `wall`: Unix seconds."""

    def add(self, used: Mapping[BudgetKey, int]) -> dict[BudgetKey, int]:
        """Add to what is kept: all of it, or on an error nothing. The new totals, other processes' use included."""

    def close(self) -> None: ...
