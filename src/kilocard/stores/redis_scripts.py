"""The scripts of lua/, and their commands as bytes. What is the same for all requests of a kind is encoded once."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path

from kilocard.stores.resp import argument, command
from kilocard.tenancy.ledger import Entry, Seat, Terms
from kilocard.tenancy.limits import Scope
from kilocard.tenancy.periods import Periods
from kilocard.tenancy.place import limits_of

PREFIX = "{kilocard}:"
GATEWAYS = PREFIX + "gateways"
NAMES = ("begin", "declare", "reserve", "settle", "beat", "leave")
#: seconds that an account outlives the longest request in it
_KEPT = 3600
#: more than any budget: charged, whatever it says
_NO_END = str(2**52)


@cache
def source(name: str) -> bytes:
    """One script as the server gets it."""
    folder = Path(__file__).parent / "lua"
    return (folder / "account.lua").read_bytes() + (folder / f"{name}.lua").read_bytes()


@cache
def digest(name: str) -> str:
    return hashlib.sha1(source(name), usedforsecurity=False).hexdigest()


def loads() -> list[bytes]:
    """Commands that make the scripts known, one reply each."""
    return [command("SCRIPT", "LOAD", source(name)) for name in NAMES]


def scope_name(key: tuple[str, str]) -> str:
    """No tenant has a NUL in its name."""
    return f"{key[0]}\0{key[1]}"


def number(value: int) -> bytes:
    """An argument of always the same width, so that all before it can be written once for many requests."""
    return b"$16\r\n%016d\r\n" % value


class Form(Terms):
    """One kind of request on one day, with its commands but for what changes."""

    __slots__ = ("charge", "reserve", "settle")

    def __init__(
        self, scopes: tuple[Scope, ...], dates: Periods, seats: tuple[Seat, ...], gateway: str, lasts: float
    ) -> None:
        super().__init__(scopes, dates, seats)
        keys = _keys(gateway, (scope.key for scope in scopes))
        kept = int(lasts) + _KEPT
        limits: list[str] = []
        budgets: list[str] = []
        open_limits: list[str] = []
        for scope in scopes:
            name = scope_name(scope.key)
            requests, tokens, running, per_day, per_month = (
                "" if limit is None else str(limit) for limit in limits_of(scope)
            )
            limits += [name, requests, tokens, running, per_day, per_month]
            open_limits += [name, "", "", "", per_day and _NO_END, per_month and _NO_END]
            budgets += [name, per_day and dates.day, per_month and dates.month]
        days = (gateway, "0", kept, dates.day, dates.month)
        #: its tail: tokens, session
        self.reserve = _head("reserve", keys, (*days, *limits), 2)
        #: the same without limits: what was let in here is told
        self.charge = _head("reserve", keys, (*days, *open_limits), 2)
        #: its tail: second, requests back, reserved, used, session
        self.settle = _head("settle", keys, (gateway, "0", kept, *budgets), 5)


def begin(gateway: str, session: int) -> bytes:
    return _head("begin", [_own(gateway), GATEWAYS], (gateway, "0"), 1) + number(session)


def leave(gateway: str, session: int) -> bytes:
    return _head("leave", [_own(gateway), GATEWAYS], (gateway,), 1) + number(session)


def beat(gateway: str, session: int, sent: int, silent: int, since: int, seats: Sequence[Seat]) -> bytes:
    """Times in microseconds of the store's clock. `seats`: what to look at."""
    keys = [_own(gateway), GATEWAYS, *(f"{PREFIX}a:{scope_name(seat.entry.key)}" for seat in seats)]
    looks: list[str] = []
    for seat in seats:
        looks.append(scope_name(seat.entry.key))
        looks += ["" if part is None else part.key.period for part in (seat.day, seat.month)]
    return _head("beat", keys, (gateway, "0", sent, silent, since, *looks), 1) + number(session)


def declare(gateway: str, session: int, entries: Sequence[Entry], second: int, lasts: float) -> bytes:
    """How this gateway stands with some scopes."""
    words: list[str] = []
    for entry in entries:
        buckets = " ".join(f"{at} {requests} {tokens}" for at, requests, tokens in entry.buckets(second))
        parts = " ".join(
            f"{period} {part.settled} {part.unsaid} {part.known} {part.held}" for period, part in entry.parts.items()
        )
        words += [scope_name(entry.key), str(entry.in_flight), buckets, parts]
    keys = _keys(gateway, (entry.key for entry in entries))
    return _head("declare", keys, (gateway, "0", int(lasts) + _KEPT, *words), 1) + number(session)


def _own(gateway: str) -> str:
    return f"{PREFIX}g:{gateway}"


def _keys(gateway: str, scopes: Iterable[tuple[str, str]]) -> list[str]:
    keys = [_own(gateway)]
    for key in scopes:
        name = scope_name(key)
        keys += [f"{PREFIX}a:{name}", f"{PREFIX}o:{gateway}:{name}"]
    return keys


def _head(name: str, keys: Sequence[str], words: Sequence[str | int], tail: int) -> bytes:
    """A command whose last `tail` arguments are still to come."""
    head = ("EVALSHA", digest(name), len(keys), *keys, *words)
    return b"*%d\r\n%b" % (len(head) + tail, b"".join(map(argument, head)))
