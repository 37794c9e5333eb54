"""What goes wrong, and when: data that a scenario carries. Times are seconds of virtual time."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from kilocard.core.errors import UsageError
from kilocard.spec.units import UnitError, duration
from kilocard.spec.vocabulary import MOST_REPLICAS


class Crash(NamedTuple):
    """The process dies: what runs there is cut, connections are refused until it has loaded again."""

    target: str
    at_s: float
    #: restarted so long after; None: never
    restart_s: float | None = 1.0


class Hang(NamedTuple):
    """Its scheduler stops: no token comes, while health and metrics pages answer as before."""

    target: str
    at_s: float
    for_s: float = math.inf


class Slow(NamedTuple):
    """A straggler: every step takes `factor` times as long."""

    target: str
    at_s: float = 0.0
    for_s: float = math.inf
    factor: float = 2.0


class Partition(NamedTuple):
    """Its metrics page is not reached, its requests are."""

    target: str
    at_s: float
    for_s: float = math.inf


class Start(NamedTuple):
    """`target` is a pool: `replicas` more are begun, and serve when they have loaded."""

    target: str
    at_s: float
    replicas: int = 1


class Drain(NamedTuple):
    """It gets nothing new, finishes what it has, and is gone."""

    target: str
    at_s: float


#: seconds, and times slower: more means for ever
MOST = 1_000_000_000
Fault = Crash | Hang | Slow | Partition | Start | Drain

KINDS: dict[str, type[Any]] = {
    "crash": Crash, "hang": Hang, "slow": Slow, "partition": Partition, "start": Start, "drain": Drain,
}  # fmt: skip
_KEYS = {"at": "at_s", "for": "for_s", "restart": "restart_s", "factor": "factor", "replicas": "replicas"}


def read_fault(text: str) -> Fault:
    """`crash REPLICA at=60 restart=5`, `slow REPLICA factor=3`, `hang … for=30`, `partition …`, `drain …`,
    `start POOL at=60 replicas=2`. Seconds, or with a unit (`at=1m30s`); `restart=never` for good. UsageError says what
    is wrong."""
    words = text.split()
    kind = KINDS.get(words[0]) if words else None
    if kind is None or len(words) < 2 or "=" in words[1]:
        raise UsageError(f"fault {text!r}: write KIND TARGET [at=SECONDS …], with a kind of {', '.join(KINDS)}")
    values: dict[str, Any] = {}
    for word in words[2:]:
        key, _, value = word.partition("=")
        name = _KEYS.get(key)
        if name is None or name not in kind._fields:
            known = ", ".join(short for short, name in _KEYS.items() if name in kind._fields)
            raise UsageError(f"fault {text!r}: {words[0]} has no {key!r}; it has {known}")
        values[name] = _value(text, key, value)
    if "at_s" not in values and "at_s" not in kind._field_defaults:
        raise UsageError(f"fault {text!r}: say when, at=SECONDS")
    fault: Fault = kind(words[1], **values)
    return fault


def _value(text: str, key: str, value: str) -> float | int | None:
    if key == "restart" and value == "never":
        return None
    try:
        found = int(value) if key == "replicas" else float(value)
    except ValueError:
        if key in ("replicas", "factor"):
            raise UsageError(f"fault {text!r}: {key}={value} is no number") from None
        try:
            found = duration(value)
        except UnitError as error:
            raise UsageError(f"fault {text!r}: {key}={value}: {error}") from None
    least = 0.01 if key == "factor" else 1 if key == "replicas" else 0
    most = MOST_REPLICAS if key == "replicas" else MOST
    if not least <= found <= most:
        raise UsageError(f"fault {text!r}: {key}={value} must be {least} or more, {most:,} at most")
    return found
