"""Events and answers as JSON-able lists and back, so that a day's traffic can be played again.

An event is `[kind, now, …]` in the order of its fields, an instruction `[kind, …]`: `["send", request, attempt,
replica, score]`, `["refuse", request, code]`, the others as their fields. Nothing here names a field, so a field that
an event gets later is recorded too. Writing lines is a driver's work.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

from kilocard.core.errors import UsageError
from kilocard.dispatch import checkpoint
from kilocard.dispatch import instructions as ins
from kilocard.dispatch.dispatcher import Dispatcher
from kilocard.dispatch.events import Event
from kilocard.dispatch.instructions import Instruction

#: raised when a line's meaning changes; the first line of a log file carries it
FORMAT = 2


def _named(kinds: UnionType) -> dict[str, type[Any]]:
    """FirstContent → first_content."""
    return {
        "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in kind.__name__)[1:]: kind
        for kind in get_args(kinds)
    }


KINDS = _named(Event)
NAMES = {kind: name for name, kind in KINDS.items()}
#: fields of a Send that are told apart: its pool is its replica's, of its decision the score is enough
_SEND = 5
INSTRUCTIONS = {kind: name for name, kind in _named(Instruction).items()}


def to_list(event: Event) -> list[Any]:
    """JSON-able: strings, numbers, None and lists."""
    return [NAMES[type(event)], *map(_plain, event)]


def _plain(value: Any) -> Any:
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return checkpoint.pack(value)
    return [_plain(part) for part in value] if isinstance(value, tuple) else value


def answer_list(instruction: Instruction) -> list[Any]:
    """What was decided, short. A policy's words and a client's error text are not part of it."""
    kind = type(instruction)
    if kind is ins.Send:
        fields: Sequence[Any] = instruction  # by place: half the cost of names
        answer = ["send", *fields[:3], fields[4][2]]
        return answer if len(fields) == _SEND else answer + [_plain(more) for more in fields[_SEND:]]
    name = INSTRUCTIONS[kind]
    if isinstance(instruction, ins.Refuse):
        return [name, instruction.request, instruction.error.code]
    return [name, *map(_plain, instruction)]


def from_list(values: Sequence[Any]) -> Event:
    """The event of one list. Raises UsageError for what is not one."""
    kind = KINDS.get(values[0]) if values and isinstance(values[0], str) else None
    if kind is None:
        raise UsageError(f"event log: {values[:1]} is not a kind of event; known are {', '.join(KINDS)}")
    fields = list(values[1:])
    try:
        for place, restore in _RESTORE[kind]:
            if fields[place] is not None:
                fields[place] = restore(fields[place])
        event: Event = kind(*fields)
    except (TypeError, ValueError, IndexError) as error:
        raise UsageError(f"event log: {values} is not a whole {values[0]} event: {error}") from error
    return event


def _restoring(hint: Any) -> Callable[[Any], Any] | None:
    """How a field of this type comes back from JSON; None: as it is."""
    for kind in get_args(hint) or (hint,):
        if isinstance(kind, type) and issubclass(kind, Enum):
            return kind
        if get_origin(hint) is Mapping:
            return checkpoint.unpack
        if isinstance(kind, type) and hasattr(kind, "_fields"):
            return lambda values, kind=kind: kind(*values)  # type: ignore[misc]  # mypy can't infer the default
        if kind is tuple or get_origin(hint) is tuple:
            return tuple
    return None


def _restorers(kind: type[Any]) -> list[tuple[int, Callable[[Any], Any]]]:
    hints = get_type_hints(kind)
    found = ((place, _restoring(hints[name])) for place, name in enumerate(kind._fields))
    return [(place, restore) for place, restore in found if restore is not None]


#: of each kind the fields that JSON does not give back as they were
_RESTORE = {kind: _restorers(kind) for kind in KINDS.values()}


#: kinds of events that a JSON encoder which knows tuples and enums writes as `to_list` does
SIMPLE = {
    kind for kind, restorers in _RESTORE.items() if all(restore is not checkpoint.unpack for _, restore in restorers)
}


def replay(dispatcher: Dispatcher, log: Iterable[Sequence[Any]]) -> Iterator[tuple[Event, Sequence[Instruction]]]:
    """Each event with what the dispatcher answers to it."""
    for values in log:
        event = from_list(values)
        yield event, dispatcher.handle(event)
