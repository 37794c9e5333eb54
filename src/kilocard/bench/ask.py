"""What the client is given: where to send, and one request ready to send."""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Target:
    """Where requests go. The same for all of one run."""

    #: scheme, host, port and any prefix, without "/v1" and without a slash at the end: "http://127.0.0.1:8000"
    url: str
    #: of the streaming endpoint: "/v1/chat/completions" or "/v1/completions"
    path: str = "/v1/chat/completions"
    #: sent with each request, the API key among them: never shown
    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    #: for https; None: the system's certificates
    tls: ssl.SSLContext | None = field(default=None, repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class Ask:
    """One request, its body encoded before the clock starts. Lengths are tokens, times seconds."""

    body: bytes = field(repr=False)
    asked_input: int
    asked_output: int
    #: when it should be sent, from the start of the workload; only an open loop looks at it
    at_s: float = 0.0
    #: asks of one session are sent one after the other, a later one `think_s` after the one before ended
    session: str | None = None
    turn: int = 0
    think_s: float = 0.0
    #: the client leaves so long after sending
    cancel_after_s: float | None = None
