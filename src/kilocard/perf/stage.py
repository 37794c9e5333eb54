"""One GPU of one pipeline stage: the lines of its memory account."""

from __future__ import annotations

from dataclasses import dataclass

from kilocard.perf.kv_cache import CacheLayout
from kilocard.perf.setting import Resolved
from kilocard.perf.weights import Weights


@dataclass(frozen=True, slots=True)
class Share:
    """A line of the account: GiB of one GPU."""

    name: str
    gib: float
    note: str = ""


@dataclass(frozen=True)
class Stage:
    """One GPU of one pipeline stage."""

    weights: Weights
    shares: tuple[Share, ...]
    budget_gib: float
    kv_gib: float
    cache: CacheLayout
    blocks: int


def account(stage: Stage, resolved: Resolved) -> str:
    budget = round(stage.budget_gib, 2)
    shown = [(share.name, round(share.gib, 2)) for share in stage.shares]
    kv = budget - sum(gib for _, gib in shown)
    terms = " + ".join(f"{name} {gib:.2f}" for name, gib in shown)
    head = f"{resolved.total_gib:.2f} GiB × {resolved.utilization:g} = {budget:.2f}"
    return f"{head} = {terms} + KV cache {kv:.2f} GiB a GPU"
