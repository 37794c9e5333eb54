"""Why a request was denied, in words, and when it would pass. Only refusals pay for this."""

from __future__ import annotations

from collections.abc import Sequence

from kilocard.tenancy.limits import (
    CONCURRENCY,
    REQUEST_EXCEEDS_LIMIT,
    REQUESTS_PER_MINUTE,
    TOKENS_PER_DAY,
    TOKENS_PER_MINUTE,
    TOKENS_PER_MONTH,
    Ask,
    Denied,
    Scope,
    Standing,
)
from kilocard.tenancy.place import Block, limits_of

_SPAN = {TOKENS_PER_MINUTE: "minute", TOKENS_PER_DAY: "day", TOKENS_PER_MONTH: "month"}


def exceeding(ask: Ask, tokens: int) -> tuple[str, int, Scope] | None:
    """The first limit that is less than the request as a whole: its kind, the limit, its scope. None: there is none."""
    for scope in ask.scopes:
        _, per_minute, _, per_day, per_month = limits_of(scope)
        for kind, limit in ((TOKENS_PER_MINUTE, per_minute), (TOKENS_PER_DAY, per_day), (TOKENS_PER_MONTH, per_month)):
            if limit is not None and tokens > limit:
                return kind, limit, scope
    return None


def never(ask: Ask, found: tuple[str, int, Scope], left: tuple[Standing | None, Standing | None]) -> Denied:
    """No waiting helps."""
    kind, limit, scope = found
    output = f" and {ask.output_tokens} for the answer" if ask.output_tokens else ""
    message = (
        f"This request needs about {ask.prompt_tokens} tokens for the prompt{output}. {_who(scope)} may use at most "
        f"{limit} in a {_SPAN[kind]}, so it never passes: ask for a shorter answer or send a shorter prompt."
    )
    return Denied(REQUEST_EXCEEDS_LIMIT, message, None, *left)


def later(ask: Ask, blocks: Sequence[Block], left: tuple[Standing | None, Standing | None]) -> Denied:
    """The limit that takes longest to have room again names the reason."""
    block = max(blocks, key=lambda block: block.wait)
    who = _who(block.scope)
    requests = "1 request" if block.limit == 1 else f"{block.limit} requests"
    if block.kind == REQUESTS_PER_MINUTE:
        message = f"{who} may send {requests} in a minute and has."
    elif block.kind == CONCURRENCY:
        message = f"{who} may have {requests} running at once and has."
    else:
        message = (
            f"{who} may use {block.limit} tokens in a {_SPAN[block.kind]}; the rest is less than the about "
            f"{ask.tokens} tokens of this request."
        )
    return Denied(block.kind, f"{message} Try again in {_duration(block.wait)}.", block.wait, *left)


def _who(scope: Scope) -> str:
    return f"Tenant '{scope.tenant}'" + (f" with model '{scope.model}'" if scope.model else "")


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{max(seconds, 0.1):.1f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
