"""Records for tests of the ledger and the log."""

from __future__ import annotations

from kilocard.tenancy.usage import Record, Tokens


def record(number: int = 1, **more: object) -> Record:
    """A stream that ended well, at second 10 of the gateway's clock."""
    usual = Record(
        started=8.0,
        ended=10.0,
        request_id=b"kc-0123456789ab-%x" % number,
        client_id=b"mine",
        peer=("10.0.0.7", 4711),
        tenant="team-a",
        asked_model="m",
        model="m",
        path="/v1/chat/completions",
        streamed=True,
        bytes_in=120,
        pool="p",
        replica="p/0",
        attempts=1,
        outcome="ok",
        status=200,
        code="",
        tokens=Tokens(100, 20, 60, False),
        held=0.25,
        first_at=8.5,
    )
    return usual._replace(**more)
