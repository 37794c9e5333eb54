"""Arrivals and a mix of lengths together: a stream of single requests that share nothing."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice, takewhile
from random import Random

from kilocard.workload.arrivals import Arrivals
from kilocard.workload.mixes import Mix
from kilocard.workload.request import WorkloadRequest


def generate(
    arrivals: Arrivals,
    mix: Mix,
    rng: Random,
    *,
    requests: int | None = None,
    duration_s: float | None = None,
) -> Iterator[WorkloadRequest]:
    """In order of at_s; ends after `requests` or before the first arrival at `duration_s`, whichever comes first.

    Endless when neither is given. Equal generators in equal states give equal workloads.
    """
    # Times and lengths draw from generators of their own: another rate then asks for the same requests.
    times = arrivals.times(Random(rng.getrandbits(64)))  # noqa: S311  # nothing secret is drawn
    lengths = Random(rng.getrandbits(64))  # noqa: S311  # nothing secret is drawn
    if duration_s is not None:
        times = takewhile(lambda at_s: at_s < duration_s, times)
    for at_s in islice(times, requests):
        kind = mix.draw(lengths)
        yield WorkloadRequest(
            at_s=at_s,
            input_tokens=kind.input.draw(lengths),
            output_tokens=kind.output.draw(lengths),
            tenant=kind.tenant,
            model=kind.model,
            priority=kind.priority,
        )
