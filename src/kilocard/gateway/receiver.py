"""Who wants a replica's response."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from kilocard.dispatch.events import Fault
    from kilocard.gateway.heads import ResponseHead


class Receiver(Protocol):
    """Who wants the response: the exchange that the connection carries."""

    def on_head(self, head: ResponseHead, length: int | None) -> None: ...
    def on_whole(self, head: ResponseHead, body: bytes) -> None:
        """Head, data and completion in one, where the whole response came in one read."""

    def on_data(self, data: bytes) -> None: ...
    def on_complete(self) -> None: ...
    def on_fault(self, fault: Fault, detail: str) -> None: ...
    def on_stale(self) -> None:
        """A reused connection was closed before any byte of the response: repeat on a fresh one."""
