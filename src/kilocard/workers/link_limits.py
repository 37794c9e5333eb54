"""A worker's LimitStore: every question goes to the supervisor, who keeps one book for all workers.

So limits are exact across workers, at the price of one message there and one back. Where no answer comes, because the
supervisor hangs or has died, the worker decides by itself with its part of each limit (limit ÷ workers, at least 1):
serving goes on, and what all workers let pass together stays about the limit. Each such decision is counted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import fields, replace
from typing import NamedTuple

from kilocard.spec.model import TenantLimits
from kilocard.tenancy.book import Book
from kilocard.tenancy.limits import Ask, Denied, Done, Grant, LimitStore, Scope, Used
from kilocard.workers import messages as words

#: seconds that an answer may take
PATIENCE = 2.0


class _Waiting(NamedTuple):
    ask: Ask
    since: float
    done: Done


class LinkLimits:
    """Implements LimitStore. `say` sends a message; `on_alone` is called for each decision without the supervisor."""

    def __init__(self, say: Callable[[words.Message], None], on_alone: Callable[[], None]) -> None:
        self._say = say
        self.workers = 1
        self._on_alone = on_alone
        self._numbers = 0
        self._waiting: dict[int, _Waiting] = {}
        self._timer: asyncio.TimerHandle | None = None
        #: what was decided here
        self._own: LimitStore = Book()
        self._own_grants: dict[int, Grant] = {}
        self._alone = False

    # -- LimitStore

    def reserve(self, ask: Ask, now: float, done: Done) -> None:
        self._numbers += 1
        number = self._numbers
        if self._alone:
            self._decide(number, ask, now, done)
            return
        self._waiting[number] = _Waiting(ask, now, done)
        self._say(
            words.Reserve(
                number, [scope[:2] for scope in ask.scopes], ask.prompt_tokens, ask.output_tokens, ask.bounded,
                ask.wall, ask.lasts,
            )
        )  # fmt: skip
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(PATIENCE, self._look, now)

    def settle(self, grant: Grant, tokens: int | None, now: float) -> None:
        assert isinstance(grant.id, int)
        own = self._own_grants.pop(grant.id, None)
        if own is not None:
            self._own.settle(own, tokens, now)
        else:
            self._say(words.Settle(grant.id, tokens))

    def used(self, scope: Scope, now: float, wall: float) -> Used:
        """Nothing: the supervisor shows what all use together."""
        return Used()

    # -- answers

    def granted(self, answer: words.Granted) -> None:
        waiting = self._waiting.pop(answer.number, None)
        if waiting is None:
            self._say(words.Settle(answer.number, None))  # too late: it was decided here
        else:
            left = (answer.requests_left, answer.tokens_left)
            waiting.done(Grant(answer.number, waiting.ask, answer.tokens, *left))

    def denied(self, answer: words.Denied) -> None:
        waiting = self._waiting.pop(answer.number, None)
        if waiting is not None:
            left = (answer.requests_left, answer.tokens_left)
            waiting.done(Denied(answer.code, answer.message, answer.retry_after, *left))

    def alone(self, now: float) -> None:
        """The supervisor is gone for good."""
        self._alone = True
        self._give_up(now, float("-inf"))

    # -- without the supervisor

    def _look(self, asked_at: float) -> None:
        """PATIENCE has passed since `asked_at`, when the oldest question was asked at that time."""
        self._timer = None
        now = asked_at + PATIENCE
        self._give_up(now, PATIENCE)
        oldest = next(iter(self._waiting.values()), None)
        if oldest is not None:
            wait = oldest.since + PATIENCE - now
            self._timer = asyncio.get_running_loop().call_later(wait, self._look, oldest.since)

    def _give_up(self, now: float, after: float) -> None:
        for number, (ask, since, done) in list(self._waiting.items()):
            if now - since < after:
                break
            del self._waiting[number]
            self._decide(number, ask, now, done)

    def _decide(self, number: int, ask: Ask, now: float, done: Done) -> None:
        self._on_alone()
        scopes = tuple(scope._replace(limits=share(scope.limits, self.workers)) for scope in ask.scopes)

        def answered(answer: Grant | Denied) -> None:
            if isinstance(answer, Grant):
                self._own_grants[number] = answer
                answer = answer._replace(id=number, ask=ask)
            done(answer)

        self._own.reserve(ask._replace(scopes=scopes), now, answered)


def share(limits: TenantLimits, workers: int) -> TenantLimits:
    """One worker's part of each limit that is set."""
    parts = {
        field.name: max(1, limit // workers)
        for field in fields(limits)
        if (limit := getattr(limits, field.name)) is not None
    }
    return replace(limits, **parts)
