"""Who is asking, and may they use this model? Pure: header values in, a tenant's name or an error out.

Keys are known as SHA-256 hashes only. What is looked up is the hash of the key that was presented, in a
dict of hashes: how long that takes says nothing about how much of a guess was right.
"""

from __future__ import annotations

import hashlib
import heapq
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from kilocard.core.errors import MODEL_NOT_ALLOWED, Forbidden, Unauthorized
from kilocard.spec.model import TenantSpec
from kilocard.tenancy.keys import cluster_keys
from kilocard.tenancy.limits import Scope, Scopes

#: header values that are remembered. Only those of known keys are, so a guesser can neither fill nor flush the memory
REMEMBERED = 1024
#: tokens that are remembered, about 1 KB each. When it is full the one that expires first goes
REMEMBERED_TOKENS = 8192

#: places of the words of `priority` in the order in which they are served; 0 is served first
PRIORITY = {"high": 0, "normal": 1, "low": 2}


_NO_SCOPES: Final = Scopes()


@dataclass(frozen=True, slots=True)
class Tenant:
    """Somebody who is known here."""

    name: str
    #: public model names; None: all
    models: frozenset[str] | None
    #: strict class: a lower one is served first
    priority: int = PRIORITY["normal"]
    #: share among tenants of one class
    weight: float = 1.0
    #: it has limits of any kind
    limited: bool = False
    limits: Scopes = _NO_SCOPES

    @classmethod
    def of(cls, spec: TenantSpec) -> Tenant:
        models = frozenset(spec.models) or None
        limits = Scopes.of(spec)
        return cls(spec.name, models, PRIORITY[spec.priority], spec.weight, limits != _NO_SCOPES, limits)

    def scopes(self, model: str) -> tuple[Scope, ...]:
        """The limits that a request for this model has to keep; may be empty."""
        return self.limits.by_model.get(model, self.limits.everywhere)

    def may_use(self, model: str) -> bool:
        return self.models is None or model in self.models


class Verified(NamedTuple):
    """What a good token says."""

    #: a declared tenant
    tenant: str
    #: Unix time from which on it is good no more
    until: float


#: who asks where the cluster file has no tenants: no key is asked for, and one that is sent belongs to the engines
ANYBODY: Final = Tenant("", None)


class Access:
    """The keys of one moment. Fixed for its life, apart from what it remembers: other keys are another Access."""

    __slots__ = ("_by_digest", "_by_header", "_by_token", "_by_x_api_key", "_expiries", "_tenants", "_verify", "open")

    def __init__(
        self,
        tenants: Mapping[str, TenantSpec],
        keys: Mapping[bytes, str] | None = None,
        verify: Callable[[bytes], Verified] | None = None,
    ) -> None:
        """`keys`: digests → names of tenants, all of them declared; None: those of the cluster file.

        `verify` says whose an identity provider's token is; it raises Unauthorized, Forbidden, or CapacityError where
        that can't be told now. None: there are no tokens.
        """
        #: there are no tenants, so everybody may use everything. A tenant without keys closes the gateway all the same
        self.open = not tenants
        self._tenants = {name: Tenant.of(spec) for name, spec in tenants.items()}
        if keys is None:
            keys = {key.digest: key.tenant for key in cluster_keys(tenants)}
        self._by_digest = {digest: self._tenants[name] for digest, name in keys.items()}
        self._by_header: dict[bytes, Tenant] = {}
        self._by_x_api_key: dict[bytes, Tenant] = {}
        self._verify = verify
        self._by_token: dict[bytes, Tenant] = {}
        #: (Unix time, header value) of each remembered token; a heap
        self._expiries: list[tuple[float, bytes]] = []

    def check(self, authorization: bytes | None, x_api_key: bytes | None, model: str) -> str:
        """The tenant that asks for `model`; "" where the gateway is open. Raises Unauthorized, Forbidden.

        Arguments are the header fields' values as they came, None for a field that is not there.
        """
        tenant = self.who(authorization, x_api_key)
        allow(tenant, model)
        return tenant.name

    def who(self, authorization: bytes | None, x_api_key: bytes | None) -> Tenant:
        """The same without a model, for what needs none (GET /v1/models). Raises Unauthorized.

        `Authorization: Bearer KEY` goes before `x-api-key: KEY` where both are there, whether its key is good or not.
        """
        if self.open:
            return ANYBODY
        if authorization is not None:
            tenant = self._by_header.get(authorization)
            if tenant is not None:
                return tenant
            tenant = self._by_token.get(authorization)
            if tenant is not None:
                return tenant
            scheme, _, key = authorization.strip().partition(b" ")
            if scheme.lower() == b"bearer":
                return self._known(key.strip(), authorization, self._by_header)
        if x_api_key is not None:
            return self._by_x_api_key.get(x_api_key) or self._known(x_api_key.strip(), x_api_key, self._by_x_api_key)
        if authorization is not None:
            raise Unauthorized("The Authorization header is not of the form 'Bearer KEY'.")
        raise Unauthorized(
            "There is no API key in this request. Send it as 'Authorization: Bearer KEY' or 'x-api-key: KEY'.",
            code="missing_api_key",
        )

    def _known(self, key: bytes, value: bytes, memory: dict[bytes, Tenant]) -> Tenant:
        if not key:
            raise Unauthorized("The API key in this request is empty.", code="missing_api_key")
        tenant = self._by_digest.get(hashlib.sha256(key).digest())
        if tenant is None:
            if self._verify is not None and memory is self._by_header and key.count(b".") == 2:  # a JWT
                return self._token(key, value)
            raise Unauthorized("The API key in this request is not known here.")
        if len(memory) >= REMEMBERED:  # one key in ever new spellings (spaces); begin again
            memory.clear()
        memory[value] = tenant
        return tenant

    def _token(self, token: bytes, value: bytes) -> Tenant:
        """A token that is not remembered. Only good ones are, until they expire."""
        assert self._verify is not None
        name, until = self._verify(token)
        tenant = self._tenants[name]
        if len(self._by_token) >= REMEMBERED_TOKENS:
            del self._by_token[heapq.heappop(self._expiries)[1]]
        self._by_token[value] = tenant
        heapq.heappush(self._expiries, (until, value))
        return tenant

    def forget_expired(self, now: float) -> None:
        """`now`: Unix time. To be called several times a second; costs nothing while nothing expires."""
        expiries = self._expiries
        while expiries and expiries[0][0] <= now:
            del self._by_token[heapq.heappop(expiries)[1]]


def allow(tenant: Tenant, model: str) -> None:
    """Raises Forbidden where this tenant may not use this model."""
    if not tenant.may_use(model):
        raise Forbidden(MODEL_NOT_ALLOWED, param="model")
