"""A load tester asks a server through the relay: the answers are the server's, and what was asked is known."""

from __future__ import annotations

import asyncio

from benchmarks.bench_truth.sent import Sent, relay
from openai_stub import Stub, served

from kilocard.bench.form import Form
from kilocard.net.client import Client


def test_all_bytes_pass_and_bodies_are_kept() -> None:
    stub = Stub()
    form = Form("m", chat=False, extra={"temperature": 0.5})
    sent = asyncio.run(ask(stub, form))
    assert sent.bodies == stub.asked
    assert [body["prompt"] for body in sent.bodies] == ["one", "two"]
    assert sent.fields() == dict(sorted(form.fields().items()))


async def ask(stub: Stub, form: Form) -> Sent:
    async with served(stub) as url, Client() as client:
        with relay(url) as (through, sent):
            for text in ("one", "two"):
                said = await client.fetch(
                    f"{through}/v1/completions", method="POST", body=form.body(text, 3), timeout=5
                )
                assert said.status == 200 and said.body.endswith(b"data: [DONE]\n\n")
            assert (await client.fetch(f"{through}/v1/models", timeout=5)).status == 200
            return sent
