"""Goodput: requests per second that met the SLO (DistServe's word, OSDI 2024), failed and unfinished ones counted."""

from __future__ import annotations

from kilocard.bench.document import Goodput, Slo
from kilocard.bench.point import Point
from kilocard.bench.record import CUT_OFF, RequestRecord


def goodput(point: Point, slo: Slo, seen_until: float) -> Goodput:
    """Of the requests that count; those cut off had been waited for until `seen_until`."""
    verdicts = [good(record, slo, seen_until) for record in point.records]
    met, undecided = verdicts.count(True), verdicts.count(None)
    decided = len(verdicts) - undecided
    return Goodput(
        requests_per_s=met / (point.ended_s - point.started_s),
        share=met / decided if decided else None,
        undecided=undecided,
    )


def good(record: RequestRecord, slo: Slo, now: float) -> bool | None:
    """Did it meet every bound? None: cut off at `now` before that was known.

    A request of one token has no TPOT, so no bound on TPOT that it could miss.
    """
    if record.error not in (None, CUT_OFF):
        return False
    waited = now - record.intended_s
    cut = record.error == CUT_OFF
    for bound, value, so_far in (
        (slo.ttft_s, record.ttft_s, waited),
        (slo.tpot_s, None if cut else record.tpot_s, 0.0),
        (slo.e2e_s, None if cut else record.e2e_s, waited),
    ):
        if bound is not None and (value if value is not None else so_far) > bound:
            return False
    return None if cut else True
