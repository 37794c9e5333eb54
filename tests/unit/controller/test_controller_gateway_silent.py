"""A gateway that does not answer is said once on the controller's own log, and once more when it is back."""

from __future__ import annotations

import asyncio
import logging

import msgspec
import pytest

from kilocard.controller import sources
from kilocard.core.errors import UpstreamError
from kilocard.core.reading import GatewayReading
from kilocard.net.client import Response


def test_a_silent_gateway_is_told_once_and_so_is_its_return(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    answers = iter((False, False, False, True, True))

    async def fetch(url: str, **_: float) -> Response:
        if not next(answers):
            raise UpstreamError("can't connect")
        return Response(200, {}, msgspec.json.encode(GatewayReading()))

    monkeypatch.setattr(sources, "fetch", fetch)
    pages = sources.AdminPages(["http://nope"], lambda: 1.0)
    with caplog.at_level(logging.INFO, "kilocard.controller"):
        for _ in range(5):
            asyncio.run(pages.read())
    assert [(each.levelname, each.getMessage()) for each in caplog.records] == [
        ("WARNING", "gateway http://nope does not answer, asked again each second: can't connect"),
        ("INFO", "gateway http://nope answers now"),
    ]
