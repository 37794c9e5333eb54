"""Who may change things through the admin address, which asks for no key: this machine, and no web page."""

from __future__ import annotations

from collections.abc import Mapping

from kilocard.core.errors import Forbidden
from kilocard.tenancy.openness import is_loopback


def only_from_here(peer: str, headers: Mapping[str, str]) -> None:
    """Raises Forbidden unless a request that changes something comes from a program on this machine.

    `peer`: the client's IP address. Browsers send `origin` with each POST, programs don't: so no page that somebody
    on this machine looks at can make the browser do it (CSRF, DNS rebinding).
    """
    if not is_loopback(peer) or "origin" in headers:
        raise Forbidden("Changes are taken only from this machine, and not from a browser.", code="local_only")
