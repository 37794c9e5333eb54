"""Limits while the store that several gateways share is away: each decides with its part of what is left.

What a gateway may let in, per limit, is the least of

- its share of the limit, limit ÷ gateways, less what it let in before that still counts;
- its share of what is left: limit less all that is known to be taken, ÷ gateways.

Where no gateway had used more than its share, all of them together stay within the limit, whatever each last heard of
the others. Shares are rounded down. A limit smaller than the number of gateways is 1 for each of them.
Running requests go by the first rule alone: nobody knows when those of others end. Budgets go by the second.
"""

from __future__ import annotations

from kilocard.spec.model import TenantLimits
from kilocard.tenancy.book import Book
from kilocard.tenancy.denial import exceeding, never
from kilocard.tenancy.ledger import Seat, Terms
from kilocard.tenancy.limits import REQUEST_EXCEEDS_LIMIT, Ask, Denied, Grant
from kilocard.tenancy.window import LENGTH

#: seconds; no refusal says more: the store may be back then
_RETRY = 5.0


class Alone:
    """One outage. `now`: seconds of the store's clock, as well as they are known here."""

    def __init__(self) -> None:
        #: only what was let in since the store went away
        self._book = Book()
        self._grants: dict[int | str, Grant] = {}

    def decide(self, id: int, ask: Ask, terms: Terms, gateways: int, now: float) -> Grant | Denied:
        """`gateways`: how many share the limits, this one included."""
        scopes = tuple(seat.scope._replace(limits=self._part(seat, gateways, now, ask.wall)) for seat in terms.seats)
        parts = ask._replace(scopes=scopes)
        answer = self._book.decide(parts, now)
        if isinstance(answer, Denied):
            return self._in_words(ask, parts, answer)
        self._grants[id] = answer
        return answer._replace(id=id, ask=ask)

    def settle(self, id: int | str, tokens: int | None, now: float) -> None:
        grant = self._grants.pop(id, None)
        if grant is not None:
            self._book.settle(grant, tokens, now)

    def _part(self, seat: Seat, gateways: int, now: float, wall: float) -> TenantLimits:
        scope, entry, day, month = seat
        new = self._book.used(scope, now, wall)
        second = int(now)
        entry.turn(second)
        others = entry.others if second <= entry.seen + LENGTH else (0, 0, 0)
        limits = scope.limits
        return TenantLimits(
            _rate(limits.requests_per_minute, entry.requests.total - new.requests, others[0], gateways),
            _rate(limits.tokens_per_minute, entry.tokens.total - new.tokens, others[1], gateways),
            _rate(limits.concurrency, entry.in_flight - new.in_flight, 0, gateways),
            None if day is None else _part_of(limits.tokens_per_day, day.taken - new.day, gateways),
            None if month is None else _part_of(limits.tokens_per_month, month.taken - new.month, gateways),
        )

    def _in_words(self, ask: Ask, parts: Ask, denied: Denied) -> Denied:
        """Parts of limits are no business of clients. What is more than a part may still be less than the limit."""
        left = denied.requests_left, denied.tokens_left
        if denied.code == REQUEST_EXCEEDS_LIMIT:
            exceeded = exceeding(ask, ask.tokens)
            if exceeded is not None:
                return never(ask, exceeded, left)
            exceeded = exceeding(parts, parts.tokens)
            assert exceeded is not None
            code = exceeded[0]
        else:
            code = denied.code
        wait = min(denied.retry_after or _RETRY, _RETRY)
        message = (
            f"No room under the limit {code} of tenant '{ask.scopes[0].tenant}' here: this gateway can't reach the "
            f"store that it shares limits with, and may give only a part of each. Try again in {wait:.1f} s."
        )
        return Denied(code, message, wait, *left)


def _rate(limit: int | None, own: int, others: int, gateways: int) -> int | None:
    """`own` and `others`: taken before. What may be taken besides."""
    if limit is None:
        return None
    part = _part_of(limit, own + others, gateways)
    assert part is not None
    return min(max(0, max(1, limit // gateways) - own), part)


def _part_of(limit: int | None, taken: int, gateways: int) -> int | None:
    if limit is None:
        return None
    left = max(0, limit - taken)
    return left // gateways if limit >= gateways else min(1, left)
