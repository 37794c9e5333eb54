"""How many clients the process has file descriptors for."""

from __future__ import annotations

import resource

#: for listeners, logs, stores, scrapes and whatever else is open
RESERVED = 64


def most_clients() -> int:
    """Each client may need a connection to a replica as well: two descriptors.

    Who comes beyond that is told so with a 503. Without this bound accept() itself would fail one day, and clients
    would see nothing but a closed connection.
    """
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 1 << 30 if soft == resource.RLIM_INFINITY else max(16, (soft - RESERVED) // 2)
