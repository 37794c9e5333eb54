"""The supervisor's side of limits: one LimitStore for all workers, and who holds which lease."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kilocard.spec.model import TenantLimits, TenantSpec
from kilocard.tenancy.limits import Ask, Denied, Grant, LimitStore, Scope
from kilocard.workers import messages as words

_NO_LIMITS = TenantLimits()
Say = Callable[[words.Message], None]


class LimitDesk:
    """Leases by worker (its life) and number. `clock`: monotonic seconds."""

    def __init__(self, store: LimitStore, tenants: Mapping[str, TenantSpec], clock: Callable[[], float]) -> None:
        self.store = store
        self._tenants = tenants
        self._clock = clock
        self._leases: dict[int, dict[int, Grant]] = {}
        self._scopes: dict[tuple[str, str], Scope] = {}

    @property
    def leases(self) -> int:
        return sum(map(len, self._leases.values()))

    def adopt(self, tenants: Mapping[str, TenantSpec]) -> None:
        """Another cluster file: its limits hold for the next request."""
        self._tenants = tenants
        self._scopes.clear()

    def join(self, life: int) -> None:
        self._leases[life] = {}

    def leave(self, life: int) -> None:
        """The worker is gone, its requests with it. What they had reserved counts as used: nobody can say any more what
        engines did for them, and no limit may be passed because a worker died."""
        now = self._clock()
        for grant in self._leases.pop(life, {}).values():
            self.store.settle(grant, grant.tokens, now)

    def reserve(self, life: int, ask: words.Reserve, say: Say) -> None:
        scopes = tuple([self._scopes.get(key) or self._scope(key) for key in ask.scopes])
        number = ask.number

        def done(answer: Grant | Denied) -> None:
            if isinstance(answer, Denied):
                say(words.Denied(number, *answer))
                return
            leases = self._leases.get(life)
            if leases is None:  # it died while the store was thinking
                self.store.settle(answer, None, self._clock())
                return
            leases[number] = answer
            say(words.Granted(number, answer.tokens, answer.requests_left, answer.tokens_left))

        wanted = Ask(scopes, ask.prompt_tokens, ask.output_tokens, ask.bounded, ask.wall, ask.lasts)
        self.store.reserve(wanted, self._clock(), done)

    def settle(self, life: int, number: int, tokens: int | None) -> None:
        """A second word on one lease changes nothing."""
        grant = self._leases.get(life, {}).pop(number, None)
        if grant is not None:
            self.store.settle(grant, tokens, self._clock())

    def _scope(self, key: tuple[str, str]) -> Scope:
        tenant, model = key
        spec = self._tenants.get(tenant)
        limits = _NO_LIMITS if spec is None else spec.model_limits.get(model, _NO_LIMITS) if model else spec.limits
        scope = self._scopes[key] = Scope(tenant, model, limits)
        return scope
