"""How a store that several gateways share is doing, for /state and /metrics."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol, runtime_checkable


class StoreStatus(NamedTuple):
    #: where it is; no password
    address: str
    #: shared: limits are counted there; all else: by this gateway alone
    state: str
    #: why not; empty: nothing is wrong
    problem: str
    #: that share the limits, this one included, as last heard
    gateways: int
    #: requests let in or refused without the store, since this process started
    decided_alone: int
    #: times that it was lost, or could not be had
    errors: int

    @property
    def up(self) -> bool:
        return self.state == "shared"

    def view(self) -> dict[str, Any]:
        """For /state."""
        return self._asdict()


@runtime_checkable
class SharedStore(Protocol):
    """A LimitStore that is elsewhere."""

    def status(self) -> StoreStatus: ...
