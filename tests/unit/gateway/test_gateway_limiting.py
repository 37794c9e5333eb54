"""What a request is charged under its tenant's limits when it ends."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kilocard.gateway.limiting import Limiting
from kilocard.spec.model import TenantLimits
from kilocard.tenancy.book import Book
from kilocard.tenancy.limits import Ask, Grant, Scope
from kilocard.tenancy.usage import Tokens


@pytest.mark.parametrize(
    ("used", "charged"),
    [
        (Tokens(900, 5, 0, True), 105),  # nobody counted the prompt: what was reserved for it is the most
        (Tokens(130, 5, 0, True), 135),  # the engine had said so before its stream broke
        (Tokens(130, 20, 0, False), 150),
    ],
)
def test_a_guess_does_not_pass_what_was_reserved(used: Tokens, charged: int) -> None:
    book = Book()
    scope = Scope("t", "", TenantLimits(tokens_per_minute=1000))
    grant = book.decide(Ask((scope,), 100, 50, True, 0.0, 60.0), 1.0)
    assert isinstance(grant, Grant)
    # 900: bytes ÷ 4 of the body, which the learned estimate made 100
    inbound: Any = SimpleNamespace(
        prompt_tokens=900,
        text_bytes=3600,
        model="m",
        tenant=SimpleNamespace(name="t"),
        route=SimpleNamespace(multipart=False),
    )
    exchange: Any = SimpleNamespace(grant=grant, used=used, inbound=inbound, usage=object(), relay=None)
    Limiting(SimpleNamespace(), book).settle(exchange, "ok" if not used.estimated else "client_gone", 2.0)  # type: ignore[arg-type]  # no plane is needed
    assert book.used(scope, 2.0, 0.0).tokens == charged
