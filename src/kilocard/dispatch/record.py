"""Events as JSON-able lists and back, so that a day's traffic can be played through another policy.

One event is `[kind, now, …]` in the order of its fields; infinities don't occur. Writing lines is a driver's work.
Replaying a log through a dispatcher with the same models, pools and seed gives the same instructions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from kilocard.core.errors import UsageError
from kilocard.core.load import LoadSample
from kilocard.dispatch import events as ev
from kilocard.dispatch.config import PoolFacts
from kilocard.dispatch.dispatcher import Dispatcher
from kilocard.dispatch.events import Event, Fault
from kilocard.dispatch.instructions import Instruction
from kilocard.spec.model import EjectSpec, HedgeSpec, HoldSpec, ModelSpec, OverheatSpec, QuarantineSpec, RetrySpec

#: raised when a field's meaning changes; the first line of a log file should carry it
FORMAT = 1

KINDS: dict[str, type[Any]] = {
    "arrived": ev.Arrived,
    "answered": ev.Answered,
    "first_content": ev.FirstContent,
    "finished": ev.Finished,
    "failed": ev.Failed,
    "abandoned": ev.Abandoned,
    "up": ev.ReplicaUp,
    "draining": ev.ReplicaDraining,
    "gone": ev.ReplicaGone,
    "scraped": ev.Scraped,
    "peer_load": ev.PeerLoad,
    "peer_ejected": ev.PeerEjected,
    "probed": ev.Probed,
    "tick": ev.Tick,
    "reconfigured": ev.Reconfigured,
}
#: ModelSpec's fields that are objects themselves
PARTS: dict[str, type[Any]] = {
    "overheat": OverheatSpec,
    "eject": EjectSpec,
    "hold": HoldSpec,
    "retry": RetrySpec,
    "quarantine": QuarantineSpec,
    "hedge": HedgeSpec,
}
NAMES = {kind: name for name, kind in KINDS.items()}


def to_list(event: Event) -> list[Any]:
    """JSON-able: strings, numbers, None and lists."""
    values: list[Any] = [NAMES[type(event)], *event]
    if isinstance(event, ev.Failed):
        values[3] = event.fault.value
    elif isinstance(event, ev.Scraped) and event.sample is not None:
        values[3] = list(event.sample)
    elif isinstance(event, ev.Reconfigured):
        values[2] = {name: asdict(model) for name, model in event.models.items()}
        values[3] = {name: list(facts) for name, facts in event.pools.items()}
    return values


def _model(fields: Mapping[str, Any]) -> ModelSpec:
    return ModelSpec(
        **{key: PARTS[key](**value) if key in PARTS and value is not None else value for key, value in fields.items()}
    )


def from_list(values: Sequence[Any]) -> Event:
    """The event of one list. Raises UsageError for what is not one."""
    kind = KINDS.get(values[0]) if values else None
    if kind is None:
        raise UsageError(f"event log: {values[:1]} is not a kind of event; known are {', '.join(KINDS)}")
    fields = list(values[1:])
    try:
        if kind is ev.Failed:
            fields[2] = Fault(fields[2])
        elif kind is ev.Scraped and fields[2] is not None:
            fields[2] = LoadSample(*fields[2])
        elif kind is ev.Reconfigured:
            fields[1] = {name: _model(model) for name, model in fields[1].items()}
            fields[2] = {name: PoolFacts(*facts) for name, facts in fields[2].items()}
        event: Event = kind(*fields)
    except (TypeError, ValueError, IndexError, AttributeError) as error:
        raise UsageError(f"event log: {values} is not a whole {values[0]} event: {error}") from error
    return event


def replay(dispatcher: Dispatcher, log: Iterable[Sequence[Any]]) -> Iterator[tuple[Event, Sequence[Instruction]]]:
    """Each event with what the dispatcher answers to it."""
    for values in log:
        event = from_list(values)
        yield event, dispatcher.handle(event)
