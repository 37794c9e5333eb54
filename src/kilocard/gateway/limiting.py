"""Tenants' limits in the life of a request: reserve before it is routed, settle when it has ended.

Only requests of tenants with limits come here.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from kilocard.core.errors import RateLimited
from kilocard.gateway.phase import RESERVING
from kilocard.gateway.rate_headers import rate_headers, refusal_headers
from kilocard.tenancy.book import Book
from kilocard.tenancy.estimate import PromptEstimates
from kilocard.tenancy.limits import Ask, Denied, Grant, LimitStore, whole_limit
from kilocard.tenancy.usage import NOTHING
from kilocard.wire.peek import prompts
from kilocard.wire.tokens import MOST_TOKENS

if TYPE_CHECKING:
    from kilocard.gateway.exchange import Exchange
    from kilocard.gateway.plane import Plane
    from kilocard.gateway.request import Inbound


class Limiting:
    """What a plane does with a LimitStore. `wall`: Unix seconds, for budgets by the calendar."""

    def __init__(
        self,
        plane: Plane,
        store: LimitStore,
        wall: Callable[[], float] = time.time,  # noqa: TID251  # budgets go by the calendar
    ) -> None:
        self.store = store
        self.wall = wall
        self._plane = plane
        self._estimates = PromptEstimates()

    def reserve(self, exchange: Exchange, now: float) -> None:
        """The exchange goes on to the dispatcher, or ends with 429: before this returns if the store is in memory."""
        inbound = exchange.inbound
        scopes = inbound.tenant.scopes(inbound.model)
        if not scopes:
            self._plane.arrive(exchange, now)
            return
        exchange.phase = RESERVING
        bound = output_bound(inbound)
        if bound > MOST_TOKENS:
            bound = MOST_TOKENS
        bounded = inbound.limited or not bound
        prompt = self._prompt(inbound)
        if prompt > inbound.prompt_tokens:  # others were denser
            whole = whole_limit(scopes)
            if whole is not None:
                # What was learned of others is no proof that this one can never pass: it may take all that there is.
                prompt = max(inbound.prompt_tokens, min(prompt, whole - bound if bounded else whole))
        asked = (scopes, prompt, bound, bounded, self.wall(), self._plane.timeouts.total)
        ask = tuple.__new__(Ask, asked)  # half the cost of Ask(…), for each request
        store = self.store
        if type(store) is Book:  # it answers at once
            self._answered(exchange, store.decide(ask, now), now)
        else:
            store.reserve(ask, now, lambda answer: self._answered(exchange, answer, self._plane.clock()))

    def _prompt(self, inbound: Inbound) -> int:
        if inbound.route.free or inbound.route.multipart:
            return 0  # a form's bytes are a recording or a picture: they say nothing about tokens
        return self._estimates.tokens(inbound.tenant.name, inbound.model, inbound.text_bytes)

    def _answered(self, exchange: Exchange, answer: Grant | Denied, now: float) -> None:
        plane = self._plane
        if exchange.phase != RESERVING:  # its client left, or its time was over
            if type(answer) is Grant:
                self.store.settle(answer, None, now)
        elif type(answer) is Grant:
            exchange.grant = answer
            exchange.client.headers += rate_headers(answer)
            plane.arrive(exchange, now)
        else:
            assert type(answer) is Denied
            plane.telemetry.limited.labels(exchange.inbound.tenant.name, answer.code).inc()
            exchange.client.headers += refusal_headers(answer)
            exchange.refuse(RateLimited(answer.message, code=answer.code, retry_after=answer.retry_after))

    def settle(self, exchange: Exchange, outcome: str, now: float) -> None:
        """Once for each exchange that holds a grant, when it has ended."""
        grant, exchange.grant = exchange.grant, None
        if grant is None:
            return
        used = exchange.used
        inbound = exchange.inbound
        prompt = used.prompt
        if used.estimated and prompt == inbound.prompt_tokens:
            # No engine counted it, so both are guesses, and what was reserved is the bound.
            prompt = min(prompt, grant.ask.prompt_tokens)
        tokens: int | None = prompt + used.output
        if outcome == "ok" and exchange.usage is None and exchange.relay is None:
            tokens = grant.tokens  # the engine did not say what it used
        elif used is NOTHING:
            # Who leaves while a replica works has sent a request, whatever its tokens are.
            tokens = 0 if outcome == "client_gone" and exchange.sent_at else None
        elif outcome == "ok" and not used.estimated and not inbound.route.multipart:
            ask = grant.ask
            doubted = ask.prompt_tokens > inbound.prompt_tokens and (
                ask.prompt_tokens + (ask.output_tokens if ask.bounded else 0) == whole_limit(ask.scopes)
            )
            tenant, model, size = inbound.tenant.name, inbound.model, inbound.text_bytes
            self._estimates.learn(tenant, model, size, used.prompt, doubted=doubted)
        self.store.settle(grant, tokens if tokens is None else min(tokens, MOST_TOKENS), now)


def output_bound(inbound: Inbound) -> int:
    """Tokens that all answers to this request may have together, as far as it says."""
    route = inbound.route
    if not route.generates:
        return 0
    choices = inbound.choices
    if route.prompt_list:
        choices *= prompts(inbound.body)
    return (inbound.output_tokens or 1) * choices  # asked for none, llama.cpp makes one
