"""A fault of the gateway itself costs the one request that it happened to."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from stub_engine import JSON_ANSWER, answer, gateway_over, run

from kilocard.core.errors import UpstreamError
from kilocard.net.client import Response


class BreaksOnce(dict[str, Any]):
    """A table that fails the first who looks something up."""

    broken = False

    def __getitem__(self, key: str) -> Any:
        if not self.broken:
            self.broken = True
            raise ZeroDivisionError("a fault that nobody foresaw")
        return super().__getitem__(key)


def test_one_instruction_that_fails_takes_no_other_request_with_it(caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        async with gateway_over(answer, args={"max-num-seqs": 1}) as setup:
            plane = setup.gateway.plane
            plane.targets = BreaksOnce(plane.targets)

            async def ask() -> Response | None:
                try:
                    return await setup.chat()
                except UpstreamError:
                    return None

            answers = await asyncio.gather(*(ask() for _ in range(6)))
            whole = [one for one in answers if one is not None]
            assert len(whole) == 5 and all(one.body == JSON_ANSWER for one in whole)
            assert b"kilocard_internal_errors_total 1\n" in plane.telemetry.registry.render()
            assert not plane.exchanges, "what it held was given back"

    run(story())
    assert "a fault that nobody foresaw" in caplog.text and "please report it" in caplog.text
