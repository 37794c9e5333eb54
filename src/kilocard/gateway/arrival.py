"""A whole request off the wire. In a file of its own, since msgspec makes the class: mypyc can't compile that."""

from __future__ import annotations

import msgspec

from kilocard.gateway.heads import RequestHead


class Arrival(msgspec.Struct, frozen=True, gc=False):
    """One request as it came, framing undone."""

    method: bytes
    path: bytes
    query: bytes  # with its "?", or empty
    head: RequestHead
    body: bytes
    keep_alive: bool
    version: str
