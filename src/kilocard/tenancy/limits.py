"""Limits as words: what a request asks for, what it is granted or denied, and what keeps count.

A request reserves what it may use before it is routed, and settles what it did use when it ends:

    Ask ──reserve──▶ Grant ──(the request runs)──▶ settle(grant, tokens)   tokens None: nothing was used, all back
                └──▶ Denied                                                nothing was taken

`Book` (book.py) keeps count in one process. A store that many processes share speaks the same protocol.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import NamedTuple, Protocol

from kilocard.spec.model import TenantLimits, TenantSpec

REQUESTS_PER_MINUTE = "requests_per_minute"
TOKENS_PER_MINUTE = "tokens_per_minute"
CONCURRENCY = "concurrency"
TOKENS_PER_DAY = "tokens_per_day"
TOKENS_PER_MONTH = "tokens_per_month"
#: the keys of TenantLimits; each is also the code of the refusal that it causes
KINDS = (REQUESTS_PER_MINUTE, TOKENS_PER_MINUTE, CONCURRENCY, TOKENS_PER_DAY, TOKENS_PER_MONTH)
#: the code of a refusal that no waiting mends
REQUEST_EXCEEDS_LIMIT = "request_exceeds_limit"

_NO_LIMITS = TenantLimits()


class Scope(NamedTuple):
    """What one set of limits is for: a tenant, or a tenant's use of one model."""

    tenant: str
    #: "": all models together
    model: str
    limits: TenantLimits

    @property
    def key(self) -> tuple[str, str]:
        """Names the counters of this scope, whatever its limits are today."""
        return self.tenant, self.model


class Scopes(NamedTuple):
    """A tenant's scopes, made once for all its requests."""

    #: what holds for a request for any model that is not in by_model
    everywhere: tuple[Scope, ...] = ()
    by_model: Mapping[str, tuple[Scope, ...]] = MappingProxyType({})

    @classmethod
    def of(cls, spec: TenantSpec) -> Scopes:
        """Limits that are all empty make no scope."""
        everywhere = () if spec.limits == _NO_LIMITS else (Scope(spec.name, "", spec.limits),)
        by_model = {
            model: (*everywhere, Scope(spec.name, model, limits))
            for model, limits in spec.model_limits.items()
            if limits != _NO_LIMITS
        }
        return cls(everywhere, by_model)

    def all(self) -> Iterator[Scope]:
        """Each of them once."""
        yield from self.everywhere
        for scopes in self.by_model.values():
            yield scopes[-1]


class Ask(NamedTuple):
    """What one request may use, before it runs."""

    #: the limits that apply, the tenant's before the model's; all of them hold. Never empty
    scopes: tuple[Scope, ...]
    #: estimate
    prompt_tokens: int
    #: of all choices together: the client's own bound, or what is assumed where it set none
    output_tokens: int
    #: the client set that bound
    bounded: bool
    #: Unix seconds: which day's and month's budget pays
    wall: float
    #: seconds; the request has ended by then. A shared store may drop a lease that outlives it: its gateway has died
    lasts: float

    @property
    def tokens(self) -> int:
        """To reserve.

        Where the client set no bound, what is assumed for the output is cut down to what the tightest limit has in all,
        so that such a request can run when nothing else does.
        """
        need = self.prompt_tokens + self.output_tokens
        if not self.bounded:
            whole = whole_limit(self.scopes)
            if whole is not None and need > whole:
                return max(whole, self.prompt_tokens)
        return need


class Standing(NamedTuple):
    """The tightest limit of one kind (requests or tokens): what the x-ratelimit-* headers say."""

    limit: int
    #: after this request
    remaining: int
    #: seconds until all of it is there again if nothing more is used
    reset: float


class Grant(NamedTuple):
    """A lease: it holds a slot, a request and tokens until it is settled."""

    #: unique in its store's life
    id: int | str
    ask: Ask
    #: tokens that are reserved
    tokens: int
    #: None: no such limit applies
    requests_left: Standing | None
    tokens_left: Standing | None


class Denied(NamedTuple):
    """Nothing was taken, and no count was changed."""

    #: one of KINDS, or REQUEST_EXCEEDS_LIMIT
    code: str
    #: for the client's eyes
    message: str
    #: seconds until the same request would pass if nothing else came; None: never
    retry_after: float | None
    requests_left: Standing | None
    tokens_left: Standing | None


#: who is told the answer to an Ask
Done = Callable[[Grant | Denied], None]


class Used(NamedTuple):
    """The counters of one scope. Tokens are real ones of what has ended and reserved ones of what runs."""

    in_flight: int = 0
    #: in the last minute
    requests: int = 0
    tokens: int = 0
    #: in this day and month, UTC
    day: int = 0
    month: int = 0

    def of(self, kind: str) -> int:
        """`kind`: one of KINDS."""
        return self[_PLACE[kind]]


_PLACE = {CONCURRENCY: 0, REQUESTS_PER_MINUTE: 1, TOKENS_PER_MINUTE: 2, TOKENS_PER_DAY: 3, TOKENS_PER_MONTH: 4}


def has_budgets(tenants: Iterable[TenantSpec]) -> bool:
    """Does anybody have a budget by the calendar?"""
    return any(
        limits.tokens_per_day is not None or limits.tokens_per_month is not None
        for spec in tenants
        for limits in (spec.limits, *spec.model_limits.values())
    )


class LimitStore(Protocol):
    """What keeps count. `now` is monotonic seconds of the caller's clock; calls come from one thread."""

    def reserve(self, ask: Ask, now: float, done: Done) -> None:
        """All scopes of `ask`, or none.

        `done` is called exactly once: before this returns by a store in memory, later by one that is elsewhere. It is
        called whatever fails: a store that is lost decides by what it has at hand. The caller may be gone by then; it
        then settles the grant with None.
        """

    def settle(self, grant: Grant, tokens: int | None, now: float) -> None:
        """The request has ended: it used `tokens`, or nothing (None: all comes back, the request's count too).

        Settling a grant again, or one that the store does not know (any more), changes nothing.
        """

    def used(self, scope: Scope, now: float, wall: float) -> Used:
        """For gauges and /state: at once, as far as it is known here. Changes nothing."""


def whole_limit(scopes: Iterable[Scope]) -> int | None:
    """The most tokens that any request may take under all of these limits; None: no limit of tokens."""
    limits = [
        limit
        for _, _, scope in scopes
        for limit in (scope.tokens_per_minute, scope.tokens_per_day, scope.tokens_per_month)
        if limit is not None
    ]
    return min(limits) if limits else None
