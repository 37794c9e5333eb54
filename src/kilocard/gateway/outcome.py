"""How a request that an error ended is counted."""

from __future__ import annotations

from kilocard.core.errors import CapacityError, KilocardError, UpstreamError


def outcome(error: KilocardError) -> str:
    """One of metrics.names.REQUESTS' outcomes. A 429 is its tenant's own matter, no failure of the cluster."""
    if error.http_status == 504:
        return "timeout"
    if isinstance(error, CapacityError):
        return "refused"
    if isinstance(error, UpstreamError):
        return "upstream_error"
    return "client_error"
