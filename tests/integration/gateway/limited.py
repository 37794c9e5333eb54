"""A gateway whose one tenant has limits, its counters, and engines that say what they used."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
from collections.abc import AsyncIterator
from typing import Any

from stub_engine import Asked, Script, Setup, Wire, gateway_over, whole, within

from kilocard.net.client import Response
from kilocard.spec.model import TenantLimits, TenantSpec
from kilocard.tenancy.limits import Scope, Used

KEY = "kc-secret-of-acme"
BEARER = ("authorization", f"Bearer {KEY}")


def acme(model: TenantLimits | None = None, **limits: Any) -> dict[str, TenantSpec]:
    """`limits` hold for everything, `model` for the model m."""
    digest = "sha256:" + hashlib.sha256(KEY.encode()).hexdigest()
    model_limits = {} if model is None else {"m": model}
    return {"acme": TenantSpec("acme", keys=(digest,), limits=TenantLimits(**limits), model_limits=model_limits)}


class Limited:
    def __init__(self, setup: Setup) -> None:
        self.setup = setup

    async def chat(self, stream: bool = False, path: str = "/v1/chat/completions", **more: Any) -> Response:
        messages = [{"role": "user", "content": "hi"}]
        return await self.setup.post(
            {"model": "m", "messages": messages, "stream": stream, **more}, path, headers=[BEARER]
        )

    def used(self, model: str = "") -> Used:
        plane = self.setup.gateway.plane
        scope = Scope("acme", model, TenantLimits(tokens_per_day=1))
        return plane.limiting.store.used(scope, plane.clock(), plane.limiting.wall())

    async def leaves(self, *, stream: bool, until: str, path: str = "/v1/chat/completions") -> None:
        """A client that goes when its request has come `until` held, sent, or content."""
        reader, writer = await self.setup.raw()
        body = json.dumps({"model": "m", "stream": stream, "max_tokens": 50}).encode()
        writer.write(
            b"POST %b HTTP/1.1\r\nhost: x\r\nauthorization: Bearer %b\r\ncontent-length: %d\r\n\r\n%b"
            % (path.encode(), KEY.encode(), len(body), body)
        )
        engine = self.setup.engines[0]
        asked = len(engine.asked)
        async with within(20.0):
            if until == "content":
                await reader.readuntil(b"\n\n\r\n")
            while until == "sent" and len(engine.asked) == asked:
                await asyncio.sleep(0.002)
            while until == "held" and not self.setup.gateway.plane.exchanges:
                await asyncio.sleep(0.002)
        writer.transport.abort()


@contextlib.asynccontextmanager
async def limited_gateway(*scripts: Script, tenants: dict[str, TenantSpec], **more: Any) -> AsyncIterator[Limited]:
    """Afterwards no lease may be left."""
    async with gateway_over(*scripts, tenants=tenants, **more) as setup:
        one = Limited(setup)
        yield one
        await setup.settles()
        assert one.used().in_flight == one.used("m").in_flight == 0


def using(prompt: int, output: int | None = None) -> Script:
    """An engine that counts `prompt` tokens, and for the answer `output` or all that it was allowed."""

    async def script(asked: Asked, wire: Wire) -> None:
        made = asked.json["max_tokens"] if output is None else output
        usage = {"prompt_tokens": prompt, "completion_tokens": made, "total_tokens": prompt + made}
        await asyncio.sleep(0.01)  # so that requests overlap
        await wire.send(whole(json.dumps({"choices": [], "usage": usage}).encode()))

    return script
