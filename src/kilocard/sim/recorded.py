"""A gateway's decision log as a workload: the same requests at the same times, to be simulated with another policy,
another size, or other faults."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from kilocard.core.errors import UsageError
from kilocard.dispatch.config import PRIORITIES
from kilocard.dispatch.events import Abandoned, Arrived, Finished
from kilocard.dispatch.record import from_list
from kilocard.dispatch.replay import read_header
from kilocard.workload.request import WorkloadRequest


def recorded_requests(lines: Iterable[Any]) -> list[WorkloadRequest]:
    """In order of arrival, the first at 0 s. Raises UsageError for what is no decision log.

    An answer whose length is not known (it failed, or the log ends before it) takes the mean of the others; a client
    that left leaves again after the same time.
    """
    rest = iter(lines)
    read_header(next(rest, None))
    arrived: dict[int, WorkloadRequest] = {}
    known: dict[int, int] = {}
    start: float | None = None
    for line in rest:
        if isinstance(line, dict):
            continue  # a checkpoint: a gateway's state, no traffic
        if not isinstance(line, list) or not line:
            raise UsageError("not a line of a decision log")
        event = from_list(line[0])
        if isinstance(event, Arrived):
            start = event.now if start is None else start
            arrived[event.request] = WorkloadRequest(
                event.now - start,
                max(1, event.prompt_tokens),
                1,
                tenant=event.tenant or None,
                model=event.model,
                priority=PRIORITIES[event.priority],
            )
        elif isinstance(event, Finished) and event.output_tokens:
            known[event.request] = event.output_tokens
        elif isinstance(event, Abandoned) and event.request in arrived and start is not None:
            request = arrived[event.request]
            arrived[event.request] = replace(request, cancel_after_s=max(0.0, event.now - start - request.at_s))
    if not arrived:
        raise UsageError("a decision log without a request in it")
    usual = max(1, round(sum(known.values()) / len(known))) if known else 1
    return [replace(request, output_tokens=known.get(id, usual)) for id, request in arrived.items()]
