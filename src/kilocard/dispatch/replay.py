"""A decision log played again: does the dispatcher decide the same, and what would another policy have done?

A log is a header, then lines. A line is `[event, instruction, …]`; `{"checkpoint": …}` in between is the dispatcher's
whole state at that point (`checkpoint.py`), at the start of a file that continues another one and behind a gap.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from kilocard.core.errors import KilocardError, UsageError
from kilocard.dispatch import checkpoint
from kilocard.dispatch.config import PoolFacts
from kilocard.dispatch.dispatcher import Dispatcher
from kilocard.dispatch.events import Abandoned, Arrived, Event, Reconfigured
from kilocard.dispatch.fleet import Fleet
from kilocard.dispatch.record import FORMAT, answer_list, from_list
from kilocard.routing.registry import make_policy
from kilocard.spec.model import ModelSpec

#: differing events that a report shows
SHOWN = 5


@dataclass(frozen=True, slots=True)
class Setup:
    """What a dispatcher is made of."""

    models: Mapping[str, ModelSpec]
    pools: Mapping[str, PoolFacts]
    seed: int
    scrape_interval: float

    def dispatcher(self) -> Dispatcher:
        rng = Random(self.seed)  # noqa: S311  # balancing load is no secret
        return Dispatcher(self.models, self.pools, rng, scrape_interval=self.scrape_interval)


def header(setup: Setup, version: str, at: float, now: float) -> dict[str, Any]:
    """The first line of a log. `version` of kilocard; `at`: seconds since 1970; `now`: the same moment as events have
    it."""
    return {"kilocard_decision_log": FORMAT, "kilocard": version, "time": at, "now": now, "seed": setup.seed,
            "setup": checkpoint.pack(setup)}  # fmt: skip


def read_header(line: Any) -> Setup:
    """Raises UsageError for what is not the first line of a log that this version reads."""
    if not isinstance(line, dict) or "kilocard_decision_log" not in line:
        raise UsageError("not a decision log: its first line is no header (gateway.record writes one)")
    if line["kilocard_decision_log"] != FORMAT:
        raise UsageError(
            f"the log has format {line['kilocard_decision_log']}, this kilocard reads {FORMAT}; "
            f"replay it with kilocard {line.get('kilocard')}, which wrote it"
        )
    setup = checkpoint.unpack(line.get("setup", []))
    if not isinstance(setup, Setup):
        raise UsageError("the log's header does not describe a dispatcher")
    return setup


@dataclass(slots=True)
class Parity:
    """What a replay found."""

    events: int = 0
    #: requests that arrived
    requests: int = 0
    #: instructions in the log
    decisions: int = 0
    #: events that were answered otherwise
    differing: int = 0
    #: times that events were lost while recording; the log goes on from a checkpoint
    gaps: int = 0
    #: the first of the differing ones
    shown: list[dict[str, Any]] = field(default_factory=list)


class Reading:
    """While a log is read, line by line: whatever a damaged line leads to is an error that names the line."""

    number = 1

    def __enter__(self) -> Reading:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, Exception) and not isinstance(error, KilocardError):
            raise UsageError(
                f"line {self.number} is damaged, or of another version: {type(error).__name__}: {error}"
            ) from error


def check(lines: Iterable[Any]) -> Parity:
    """Play a log, header first, through the dispatcher that it describes. Raises UsageError for what is no log."""
    found = Parity()
    rest = iter(lines)
    with Reading() as at:
        dispatcher = read_header(next(rest, None)).dispatcher()
        for at.number, line in enumerate(rest, 2):
            if isinstance(line, dict):
                dispatcher = _restored(line, at.number)
                found.gaps += bool(line.get("lost"))
                continue
            event, recorded = _split(line, at.number)
            answer = [answer_list(instruction) for instruction in dispatcher.handle(event)]
            found.events += 1
            found.requests += isinstance(event, Arrived)
            found.decisions += len(recorded)
            if answer != recorded:
                found.differing += 1
                if len(found.shown) < SHOWN:
                    found.shown.append({"line": at.number, "event": line[0], "recorded": recorded, "replayed": answer})
    return found


def _restored(line: dict[str, Any], number: int) -> Dispatcher:
    restored = checkpoint.unpack(line["checkpoint"]) if "checkpoint" in line else None
    if not isinstance(restored, Dispatcher):
        raise UsageError(f"line {number} is not a checkpoint of a dispatcher")
    return restored


def _split(line: Any, number: int) -> tuple[Event, list[Any]]:
    if not isinstance(line, list) or not line or not isinstance(line[0], list):
        raise UsageError(f"line {number} is no line of a decision log")
    try:
        return from_list(line[0]), line[1:]
    except UsageError as error:
        raise UsageError(f"line {number}: {error.message}") from error


@dataclass(slots=True)
class WhatIf:
    """Decisions of another policy on the same events. Not a simulation: answers still come when they came then."""

    policy: str
    #: requests that a replica was chosen for, then
    sent: int = 0
    #: of these, whose first replica would have been another one
    elsewhere: int = 0
    #: of these, who would have waited or been refused instead
    not_sent: int = 0
    #: requests that waited or were refused then and would have been sent at once
    sent_instead: int = 0
    #: first sends by replica: then and under the other policy
    replicas: dict[str, list[int]] = field(default_factory=dict)


def what_if(lines: Iterable[Any], policy: str) -> WhatIf:
    """Play a log through dispatchers whose models all have `policy`. Raises UsageError, SpecError."""
    found = WhatIf(policy)
    rest = iter(lines)
    with Reading() as at:
        setup = read_header(next(rest, None))
        make_policy(policy, Random(0))  # noqa: S311  # only its name is checked
        dispatcher = replace(setup, models=_with_policy(setup.models, policy)).dispatcher()
        for at.number, line in enumerate(rest, 2):
            if isinstance(line, dict):
                dispatcher = _restored(line, at.number)
                _use_policy(dispatcher.fleet, policy)
                continue
            event, recorded = _split(line, at.number)
            if isinstance(event, Reconfigured):
                event = event._replace(models=_with_policy(event.models, policy))
            answer = [answer_list(instruction) for instruction in dispatcher.handle(event)]
            if isinstance(event, Arrived):
                _compare(found, _first(recorded, event.request), _first(answer, event.request))
            for name, request, *_ in recorded:
                if name == "refuse":  # it ended then; where it was sent instead it has to end too
                    dispatcher.handle(Abandoned(event.now, request))
    return found


def _with_policy(models: Mapping[str, ModelSpec], policy: str) -> dict[str, ModelSpec]:
    return {name: replace(model, policy=policy) for name, model in models.items()}


def _use_policy(fleet: Fleet, name: str) -> None:
    """Fresh policies in the middle of a fleet's life: they know its load, and have learned nothing yet."""
    for pool in fleet.pools.values():
        pool.policies = pool.observers = ()
    for model in fleet.queues:
        for route in model.routes:
            policy = route.policy = make_policy(name, Random(0))  # noqa: S311  # balancing load is no secret
            pool = route.pool
            pool.policies += (policy,)
            if policy.observes:
                pool.observers += (policy,)
            for replica in pool.replicas.values():
                if replica.listed:
                    policy.add(replica)


def _first(answer: list[Any], request: int) -> str | None:
    """The replica that a request was sent to at once."""
    return next((item[3] for item in answer if item[0] == "send" and item[1] == request), None)


def _compare(found: WhatIf, then: str | None, now: str | None) -> None:
    for replica, column in ((then, 0), (now, 1)):
        if replica is not None:
            found.replicas.setdefault(replica, [0, 0])[column] += 1
    if then is None:
        found.sent_instead += now is not None
        return
    found.sent += 1
    found.elsewhere += now is not None and now != then
    found.not_sent += now is None
