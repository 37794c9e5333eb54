"""A dispatcher's whole state as plain data, and back: where a log can begin in the middle of a gateway's life.

Nothing is left out and nothing is named: the walk goes from the dispatcher through every object that it holds, so a
part that is added later is in the checkpoint too. What comes back answers every event as the original would,
chance included.

The form is JSON-able: a table of things, and references into it. Only things of kilocard's pure rooms and a few of
the standard library can be in it, and reading one runs no code that the file names: a log is data, never a program.
"""

from __future__ import annotations

import importlib
from collections import OrderedDict, defaultdict, deque
from enum import Enum
from math import isfinite
from random import Random
from types import BuiltinMethodType, FunctionType, MappingProxyType, MethodType
from typing import Any

from kilocard.core.errors import UsageError

#: rooms whose classes and functions may stand in a checkpoint
ROOMS = ("kilocard.core.", "kilocard.spec.", "kilocard.routing.", "kilocard.dispatch.")
MOST_INT = 1 << 63
_COLLECTIONS: dict[str, type[Any]] = {
    "list": list, "tuple": tuple, "set": set, "frozenset": frozenset, "deque": deque, "dict": dict,
    "ordered": OrderedDict, "proxy": MappingProxyType,
}  # fmt: skip
_KIND = {kind: name for name, kind in _COLLECTIONS.items()}
_MAPPINGS = {"dict", "ordered", "proxy"}
_BUILTINS: dict[str, type[Any]] = {"int": int, "float": float, "list": list, "dict": dict, "set": set}
_BUILTIN_NAMES = {kind: name for name, kind in _BUILTINS.items()}


class _Packer:
    def __init__(self) -> None:
        self.table: list[Any] = []
        self._places: dict[int, int] = {}
        #: ids are unique only among what lives
        self._alive: list[Any] = []

    def pack(self, value: Any) -> Any:
        """A plain value as itself; anything else as [place in the table]."""
        kind = type(value)
        if value is None or kind is bool or kind is str:
            return value
        if kind is int:  # JSON encoders end at 64 bits
            return value if -MOST_INT <= value < MOST_INT else {"int": hex(value)}
        if kind is float:  # JSON has no word for some of them
            return value if isfinite(value) else {"float": repr(value)}
        if kind is bytes:
            return {"bytes": value.hex()}
        place = self._places.get(id(value))
        if place is None:
            place = self._places[id(value)] = len(self.table)
            self._alive.append(value)
            self.table.append(None)
            self.table[place] = self._entry(value, kind)
        return [place]

    def _entry(self, value: Any, kind: type[Any]) -> Any:
        pack = self.pack
        name = _KIND.get(kind)
        if name in _MAPPINGS:
            return [name, [[pack(key), pack(item)] for key, item in value.items()]]
        if kind is deque:
            return [name, [pack(item) for item in value], value.maxlen]
        if name is not None:
            # the order of a set is no part of what it is
            return [name, [pack(item) for item in (sorted(value) if kind in (set, frozenset) else value)]]
        if kind is defaultdict:
            return ["default", pack(value.default_factory), [[pack(key), pack(item)] for key, item in value.items()]]
        if kind is Random:
            version, words, gauss = value.getstate()
            return ["random", [version, list(words), gauss]]
        if kind in (MethodType, BuiltinMethodType):
            return ["method", pack(value.__self__), value.__name__]
        if kind in (type, FunctionType) or isinstance(value, type):
            return ["named", _BUILTIN_NAMES.get(value) or _address(value)]
        if isinstance(value, Enum):
            return ["enum", _address(kind), value.value]
        if isinstance(value, tuple):
            return ["record", _address(kind), [pack(item) for item in value]]
        return ["object", _address(kind), {slot: pack(item) for slot, item in _state(value).items()}]


def _address(thing: Any) -> str:
    if not thing.__module__.startswith(ROOMS) or "<" in thing.__qualname__:
        raise TypeError(f"{thing.__module__}.{thing.__qualname__} can't be part of a dispatcher's state")
    return f"{thing.__module__}:{thing.__qualname__}"


def _slots(kind: type[Any]) -> list[str]:
    found: list[str] = []
    for base in reversed(kind.__mro__):
        slots = base.__dict__.get("__slots__", ())
        found += [slots] if isinstance(slots, str) else slots
    return [slot for slot in found if slot not in ("__dict__", "__weakref__")]


def _state(value: Any) -> dict[str, Any]:
    state = {slot: getattr(value, slot) for slot in _slots(type(value)) if hasattr(value, slot)}
    return state | getattr(value, "__dict__", {})


def pack(thing: Any) -> list[Any]:
    """The table; its first entry is `thing`. Raises TypeError where something can't be packed: a fault of the code."""
    packer = _Packer()
    packer.pack(thing)
    return packer.table


class _Unpacker:
    def __init__(self, table: list[Any]) -> None:
        self._table = table
        self._made: dict[int, Any] = {}

    def unpack(self, value: Any) -> Any:
        if isinstance(value, list):
            place = value[0]
            if place not in self._made:
                self._make(place, *self._table[place])
            return self._made[place]
        if isinstance(value, dict):
            if "int" in value:
                return int(value["int"], 16)
            return float(value["float"]) if "float" in value else bytes.fromhex(value["bytes"])
        return value

    def _make(self, place: int, kind: str, first: Any, second: Any = None) -> None:
        """Things that can hold themselves are entered empty, then filled."""
        unpack, made = self.unpack, self._made
        match kind:
            case "dict" | "ordered":
                mapping = made[place] = _COLLECTIONS[kind]()
                mapping.update((unpack(key), unpack(item)) for key, item in first)
            case "proxy":
                made[place] = MappingProxyType({unpack(key): unpack(item) for key, item in first})
            case "default":
                mapping = made[place] = defaultdict(unpack(first))
                mapping.update((unpack(key), unpack(item)) for key, item in second)
            case "list":
                items = made[place] = []
                items.extend(unpack(item) for item in first)
            case "deque":
                queue = made[place] = deque(maxlen=second)
                queue.extend(unpack(item) for item in first)
            case "set" | "frozenset":
                made[place] = _COLLECTIONS[kind](unpack(item) for item in first)
            case "tuple" | "record":
                of, items = (tuple, first) if kind == "tuple" else (_class(first, tuple), second)
                parts = [unpack(item) for item in items]
                if place not in made:  # one that holds itself has been made on the way: there may be only one
                    made[place] = tuple.__new__(of, parts)
            case "random":
                version, words, gauss = first
                rng = made[place] = Random()  # noqa: S311  # its state is set in the next line
                rng.setstate((version, tuple(words), gauss))
            case "method":
                made[place] = _method(unpack(first), second)
            case "named":
                made[place] = _BUILTINS.get(first) or _find(first)
            case "enum":
                made[place] = _class(first, Enum)(second)
            case "object":
                self._fill(place, _class(first, object), second)
            case _:
                raise UsageError(f"checkpoint: {kind!r} is no kind of thing")

    def _fill(self, place: int, kind: type[Any], state: dict[str, Any]) -> None:
        try:
            thing = self._made[place] = object.__new__(kind)
        except TypeError as error:  # a class that is C makes no empty things
            raise UsageError(
                "checkpoint: an installation with a compiled hot path can't read it; replay the log with a plain one"
            ) from error
        for name, value in state.items():
            object.__setattr__(thing, name, self.unpack(value))  # frozen ones too


def _method(owner: Any, name: Any) -> Any:
    """A public or private method, never what Python itself keeps behind two underscores."""
    method = None if not isinstance(name, str) or name.startswith("__") else getattr(owner, name, None)
    if not isinstance(method, MethodType | BuiltinMethodType):
        raise UsageError(f"checkpoint: {name!r} is not a method of {type(owner).__name__}")
    return method


def _find(address: str) -> Any:
    module, _, path = address.partition(":")
    if not module.startswith(ROOMS):
        raise UsageError(f"checkpoint: {address!r} is not part of kilocard's pure rooms")
    try:
        found: Any = importlib.import_module(module)
        for name in path.split("."):
            found = vars(found)[name]
    except (ImportError, KeyError, TypeError) as error:
        raise UsageError(
            f"checkpoint: this version of kilocard has no {address}; replay with the one that wrote it"
        ) from error
    if getattr(found, "__module__", None) != module:
        raise UsageError(f"checkpoint: {address!r} is only imported there")
    return found


def _class(address: str, base: type[Any]) -> Any:
    found = _find(address)
    if not (isinstance(found, type) and issubclass(found, base)):
        raise UsageError(f"checkpoint: {address!r} is not a class of {base.__name__}s")
    return found


def unpack(table: list[Any]) -> Any:
    """What `pack` was given. Raises UsageError for a table that it did not make, or another version did."""
    try:
        return _Unpacker(table).unpack([0])
    except (TypeError, ValueError, KeyError, IndexError, AttributeError, RecursionError) as error:
        raise UsageError(f"checkpoint: can't be read: {type(error).__name__}: {error}") from error
