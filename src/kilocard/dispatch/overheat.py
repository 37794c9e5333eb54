"""过热熔断: a replica whose own queue or KV cache is full gets nothing more until it has recovered."""

from __future__ import annotations

from kilocard.dispatch.replica import Replica
from kilocard.spec.model import OverheatSpec

#: the least estimated queue there is
ANY = 1e-9


def set_thresholds(replica: Replica, spec: OverheatSpec) -> None:
    """After each reading: the estimated waiting from which it is hot (`trip`), and down to which (`cool`).

    A full KV cache alone is normal (an engine fills it before it lets anyone wait), so it only lowers the
    threshold to any waiting at all; where waiting is unknown, it is enough by itself.
    """
    kv = replica.kv_usage
    replica.trip = spec.waiting
    replica.cool = spec.waiting * spec.recover
    if kv is None:
        return
    if kv >= spec.kv_usage:
        replica.trip = ANY if replica.waiting_known else 0.0
    if kv > spec.kv_recover:
        replica.cool = 0.0 if replica.waiting_known else -1.0


def judge(replica: Replica) -> bool:
    """Whether it is hot now, given whether it was."""
    if replica.hot:
        return replica.waiting > replica.cool
    return replica.waiting >= replica.trip
