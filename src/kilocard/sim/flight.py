"""A request under way, and its attempts on replicas."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kilocard.workload.request import WorkloadRequest

if TYPE_CHECKING:
    from kilocard.sim.gateway import Gateway
    from kilocard.sim.server import Server


class Attempt:
    """`name` is the engine's name for it. `over`: ended, failed or cut; nothing that it still does counts."""

    __slots__ = ("flight", "name", "over", "server")

    def __init__(self, flight: Flight, server: Server, number: int) -> None:
        self.flight = flight
        self.server = server
        self.name = f"{flight.id}.{number}"
        self.over = False


class Flight:
    """One request in one gateway. While it is held it has no attempt."""

    __slots__ = ("arrived_at", "attempt", "content", "gateway", "id", "request", "second", "sent_at")

    def __init__(self, id: int, request: WorkloadRequest, gateway: Gateway, now: float) -> None:
        self.id = id
        self.request = request
        self.gateway = gateway
        self.arrived_at = now
        #: of its attempt
        self.sent_at = 0.0
        self.attempt: Attempt | None = None
        #: where the first is late (dispatch.hedging)
        self.second: Attempt | None = None
        #: its first token has been passed on
        self.content = False
