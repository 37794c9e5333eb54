"""What a shared store's script answers, in the words of limits.py. The script only counts; this says it to clients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from kilocard.tenancy.denial import exceeding, later, never
from kilocard.tenancy.ledger import Known, Seat, Terms
from kilocard.tenancy.limits import (
    CONCURRENCY,
    REQUESTS_PER_MINUTE,
    TOKENS_PER_DAY,
    TOKENS_PER_MINUTE,
    TOKENS_PER_MONTH,
    Ask,
    Denied,
    Grant,
    Standing,
)
from kilocard.tenancy.place import SLOT_WAIT, Block, tighter
from kilocard.tenancy.window import LENGTH

_KNOWN = len(Known._fields)


class Room(NamedTuple):
    """Of a scope, when there was no room: the second whose end makes some, and the newest with anything in it."""

    #: -1: there is room
    request_leaves: int
    tokens_leave: int
    #: 0: none
    newest_request: int
    newest_tokens: int


_ROOM = len(Room._fields)
_BOTH = _KNOWN + _ROOM
#: a slot leaves the window when all of it is this old
_LEAVES = LENGTH + 1


def known_of(numbers: Sequence[int], scopes: int) -> list[Known]:
    """Of an answer without Room."""
    return [Known(*numbers[place : place + _KNOWN]) for place in range(0, scopes * _KNOWN, _KNOWN)]


def granted(id: int, ask: Ask, terms: Terms, tokens: int, all_known: list[Known], now: float) -> Grant:
    """`now`: seconds of the store's clock."""
    reset = int(now) + _LEAVES - now  # this request is the newest of all
    requests = found = None
    for seat, known in zip(terms.seats, all_known, strict=True):
        requests = tighter(requests, _requests(seat, known, reset))
        found = tighter(found, _tokens(seat, known, reset, terms, ask.wall))
    return Grant(id, ask, tokens, requests, found)


def denied(ask: Ask, terms: Terms, tokens: int, numbers: Sequence[int], now: float) -> Denied:
    """`numbers`: Known and Room of each scope."""
    requests = found = None
    blocks: list[Block] = []
    for number, seat in enumerate(terms.seats):
        base = number * _BOTH
        known = Known(*numbers[base : base + _KNOWN])
        room = Room(*numbers[base + _KNOWN : base + _BOTH])
        limits = seat.scope.limits
        requests = tighter(requests, _requests(seat, known, _until(room.newest_request, known.requests, now)))
        minute = _until(room.newest_tokens, known.tokens, now)
        found = tighter(found, _tokens(seat, known, minute, terms, ask.wall))
        if room.request_leaves >= 0 and limits.requests_per_minute is not None:
            wait = max(0.0, room.request_leaves + _LEAVES - now)
            blocks.append(Block(REQUESTS_PER_MINUTE, limits.requests_per_minute, seat.scope, wait))
        if room.tokens_leave >= 0 and limits.tokens_per_minute is not None:
            wait = max(0.0, room.tokens_leave + _LEAVES - now)
            blocks.append(Block(TOKENS_PER_MINUTE, limits.tokens_per_minute, seat.scope, wait))
        if limits.concurrency is not None and known.in_flight >= limits.concurrency:
            blocks.append(Block(CONCURRENCY, limits.concurrency, seat.scope, SLOT_WAIT))
        day, month = known.day_settled + known.day_held, known.month_settled + known.month_held
        if limits.tokens_per_day is not None and day + tokens > limits.tokens_per_day:
            wait = terms.dates.day_end - ask.wall
            blocks.append(Block(TOKENS_PER_DAY, limits.tokens_per_day, seat.scope, wait))
        if limits.tokens_per_month is not None and month + tokens > limits.tokens_per_month:
            wait = terms.dates.month_end - ask.wall
            blocks.append(Block(TOKENS_PER_MONTH, limits.tokens_per_month, seat.scope, wait))
    exceeded = exceeding(ask, tokens)
    if exceeded is not None:
        return never(ask, exceeded, (requests, found))
    return later(ask, blocks, (requests, found))


def _until(newest: int, total: int, now: float) -> float:
    """Seconds until a window is empty by itself."""
    return max(0.0, newest + _LEAVES - now) if total else 0.0


def _requests(seat: Seat, known: Known, reset: float) -> Standing | None:
    limit = seat.scope.limits.requests_per_minute
    return None if limit is None else Standing(limit, max(0, limit - known.requests), reset)


def _tokens(seat: Seat, known: Known, reset: float, terms: Terms, wall: float) -> Standing | None:
    limits, dates, best = seat.scope.limits, terms.dates, None
    if limits.tokens_per_minute is not None:
        left = max(0, limits.tokens_per_minute - known.tokens)
        best = Standing(limits.tokens_per_minute, left, reset if known.tokens else 0.0)
    if limits.tokens_per_day is not None:
        left = max(0, limits.tokens_per_day - known.day_settled - known.day_held)
        best = tighter(best, Standing(limits.tokens_per_day, left, dates.day_end - wall))
    if limits.tokens_per_month is not None:
        left = max(0, limits.tokens_per_month - known.month_settled - known.month_held)
        best = tighter(best, Standing(limits.tokens_per_month, left, dates.month_end - wall))
    return best
