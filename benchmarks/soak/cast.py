"""Who asks: tenants as a company has them, each with its own manners and limits."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field

#: in every key of the run, so that one that leaks into a log is found
KEY_MARK = "sk-soak-"

#: the model that everybody asks, over replicas that suffer
MODEL = "m"
#: the model whose engines die of some bodies, and of nothing else
FRAGILE = "fragile"


@dataclass(frozen=True)
class Tenant:
    """`limits`: as in the cluster file. `clients`: share of the clients that are this tenant's."""

    name: str
    clients: int
    priority: str = "normal"
    weight: float = 1.0
    limits: Mapping[str, int] = field(default_factory=dict)
    #: the limits that every second change of the file gives it
    other_limits: Mapping[str, int] = field(default_factory=dict)
    model: str = MODEL
    #: waits for nobody: may be refused for want of room while a crowd is there
    yields: bool = False

    @property
    def key(self) -> str:
        return f"{KEY_MARK}{self.name}-0123456789abcdef"

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.key.encode()).hexdigest()

    def limits_in(self, variant: int) -> Mapping[str, int]:
        """Its limits in that version of the cluster file."""
        return self.other_limits if variant % 2 and self.other_limits else self.limits


#: the only one that the exclusive pool lets in
OWNER = "owner"
#: who comes in crowds
FLOOD = "flood"


def cast(scale: float) -> dict[str, Tenant]:
    """`scale`: how many times the requests of the plain run are sent; limits grow with it."""

    def some(count: int) -> int:
        return max(1, round(count * scale))

    def rpm(count: int) -> dict[str, int]:
        return {"requests_per_minute": some(count)}

    def tpm(count: int) -> dict[str, int]:
        return {"tokens_per_minute": round(count * (0.7 + 0.3 * scale))}  # what comes at a rate is short

    tenants = [
        Tenant("free", 14),
        Tenant("urgent", 4, priority="high"),
        Tenant("heavy", 4, weight=3.0),
        Tenant("batch", 3, priority="low", yields=True),
        Tenant("minute", 4, limits=rpm(120), other_limits=rpm(90)),
        Tenant("tokens", 4, limits=tpm(40_000), other_limits=tpm(30_000)),
        Tenant("narrow", 3, limits={"concurrency": 3}, other_limits={"concurrency": 2}),
        Tenant("budget", 2, limits={"tokens_per_day": some(120_000), "concurrency": 50}),
        Tenant(OWNER, 2),
        Tenant("tester", 2, model=FRAGILE),
        Tenant(FLOOD, 0, yields=True),
    ]
    return {tenant.name: tenant for tenant in tenants}


def casting(tenants: Mapping[str, Tenant], count: int) -> list[Tenant]:
    """`count` clients' tenants, dealt out by `clients` so that each tenant has one as soon as there are enough."""
    deals: list[tuple[float, int, Tenant]] = []
    for place, tenant in enumerate(tenants.values()):
        deals += [((turn + 0.5) / tenant.clients, place, tenant) for turn in range(tenant.clients)]
    order = [tenant for _, _, tenant in sorted(deals, key=lambda deal: deal[:2])]
    return [order[number % len(order)] for number in range(count)]
