"""How long the gateway waits and what it may hold, as frozen types; part of `spec/model.py`.

Durations are seconds, sizes bytes.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Four time-outs, kept apart because they mean different faults."""

    connect: float = 2.0
    #: first token: base + per_prompt_token × prompt tokens
    first_token: float = 120.0
    first_token_per_prompt_token: float = 0.002
    #: added to first_token for each token that an answer may have which is not streamed
    per_output_token: float = 0.1
    #: between two pieces of one response
    idle: float = 60.0
    total: float = 1800.0


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds on what a client may make the gateway hold in memory."""

    body: int = 32 * 1024 * 1024
    header: int = 64 * 1024
    #: the request's path and query
    url: int = 8 * 1024
    #: all request bodies and response buffers of the gateway together
    buffered: int = 1024 * 1024 * 1024
    connections: int = 20_000
    #: a client has this long to send a whole request head or to go on with its body
    client_idle: float = 30.0
    #: and sends its body at this many bytes a second at least, once `client_idle` is over
    body_rate: int = 1024
    #: how long an idle client connection is kept (more than the usual load balancer's 60 s)
    keep_alive: float = 75.0
