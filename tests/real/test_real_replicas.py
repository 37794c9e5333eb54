"""Two real replicas behind `kilocard up`, once vLLM's and once llama.cpp's: the same story for both.

The tests of one engine share one cluster, since starting it is what takes the time. The last one ends it.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from openai import APIError, AsyncOpenAI, OpenAI
from real_cluster import Up, metric, page, until, up

from kilocard.backends import models

pytestmark = [pytest.mark.slow, pytest.mark.timeout(420)]  # a start of two engines is within the first test's time

LONG = [{"role": "user", "content": "Write a very long story about a dragon who learns to count. Do not stop."}]
# A question that even this small model gets right, in 4 bits too (the capital of France it does not).
GPU = [{"role": "user", "content": "What is a GPU?"}]


@dataclass(frozen=True)
class Kind:
    """One engine: its cluster, and what its own metrics page calls things."""

    spec: dict[str, Any]
    running: str
    generated: str
    #: a client that leaves while it waits for a plain answer stops the generation, as in a stream
    aborts_plain: bool


def vllm_kind(request: pytest.FixtureRequest) -> Kind:
    built = request.getfixturevalue("vllm_cpu")
    pool = {
        "engine": "vllm",
        "command": [str(built.vllm)],
        "model": str(built.model),
        "args": {"max-model-len": 2048, "max-num-seqs": 8, "dtype": "bfloat16", "enforce-eager": True},
        # Left alone, each vLLM binds its threads to the same first core.
        "env": {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind", "OMP_NUM_THREADS": "1"},
        "version": "0.32.0+cpu",  # a CPU build: no GPU is taken
        "replicas": 2,
    }
    spec = {"models": {"smol": {"pools": {"cpu": 1}}}, "pools": {"cpu": pool}}
    return Kind(spec, "vllm:num_requests_running", "vllm:generation_tokens_total", aborts_plain=True)


def llamacpp_kind(request: pytest.FixtureRequest) -> Kind:
    models.fetch()
    pool = {"engine": "llamacpp", "args": {"parallel": 4, "ctx-size": 8192, "threads": 1}, "replicas": 2}
    spec = {"models": {"smol": {"pools": {"cpu": 1}}}, "pools": {"cpu": pool}}
    return Kind(spec, "llamacpp:requests_processing", "llamacpp:tokens_predicted_total", aborts_plain=False)


KINDS = {"vllm": vllm_kind, "llamacpp": llamacpp_kind}


@pytest.fixture(
    scope="module",
    params=[
        pytest.param("vllm", marks=pytest.mark.vllm),
        pytest.param("llamacpp", marks=pytest.mark.llamacpp),
    ],
)
def kind(request: pytest.FixtureRequest) -> Kind:
    return KINDS[request.param](request)


@pytest.fixture(scope="module")
def cluster(kind: Kind, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    with up(kind.spec, tmp_path_factory.mktemp("real")) as running:
        running.wait_ready(2)
        yield running


@pytest.fixture
def client(cluster: Up) -> Iterator[OpenAI]:
    with cluster.client() as made:
        yield made


def test_chat_with_usage(client: OpenAI) -> None:
    answer = client.chat.completions.create(model="smol", messages=GPU, max_tokens=40, temperature=0)
    assert "raphics" in (answer.choices[0].message.content or "")
    assert answer.usage is not None
    assert answer.usage.prompt_tokens > 10 and answer.usage.completion_tokens > 3
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens


def test_streamed_chat_says_the_same_as_the_plain_one(client: OpenAI) -> None:
    plain = client.chat.completions.create(model="smol", messages=GPU, max_tokens=40, temperature=0)
    chunks = list(client.chat.completions.create(model="smol", messages=GPU, max_tokens=40, temperature=0, stream=True))
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == plain.choices[0].message.content
    assert chunks[-1].choices[0].finish_reason == plain.choices[0].finish_reason
    assert [chunk.usage for chunk in chunks if chunk.usage] == [], "usage that nobody asked for"


def test_streamed_usage_where_it_is_asked_for(client: OpenAI, cluster: Up) -> None:
    def accounted() -> float:
        return metric(cluster.admin("/metrics"), "kilocard_generation_tokens_total")

    before = accounted()
    stream = client.chat.completions.create(
        model="smol", messages=GPU, max_tokens=5, stream=True, stream_options={"include_usage": True}
    )
    usages = [chunk.usage for chunk in stream if chunk.usage]
    assert len(usages) == 1
    assert usages[0].completion_tokens == 5
    assert usages[0].prompt_tokens > 10
    assert accounted() - before == 5


def test_a_model_that_is_not_there(client: OpenAI) -> None:
    assert "smol" in [model.id for model in client.models.list()]
    with pytest.raises(APIError) as error:
        client.chat.completions.create(model="nope", messages=GPU)
    assert error.value.code == "model_not_found"


def test_both_replicas_work(cluster: Up, kind: Kind) -> None:
    def generated() -> list[float]:
        return [metric(page(f"{replica['url']}/metrics"), kind.generated) for replica in cluster.ready()]

    async def many() -> None:
        async with cluster.async_client() as client:
            await asyncio.gather(*(ask(client, max_tokens=24) for _ in range(8)))

    before = generated()
    asyncio.run(many())
    gained = [after - old for after, old in zip(generated(), before, strict=True)]
    assert len(gained) == 2 and min(gained) > 24, f"tokens by replica: {gained}"


@pytest.mark.parametrize("streaming", [True, False], ids=["streaming", "plain"])
def test_a_client_that_leaves_frees_the_slot_within_2_s(cluster: Up, kind: Kind, streaming: bool) -> None:
    urls = [replica["url"] for replica in cluster.ready()]

    def busy() -> float:
        return sum(metric(page(f"{url}/metrics"), kind.running) for url in urls)

    async def leave() -> None:
        async with cluster.async_client() as client:
            # What llama.cpp goes on with after the client is gone has to end soon, for the tests that follow.
            tokens = 1500 if streaming or kind.aborts_plain else 150
            asking = asyncio.ensure_future(
                client.chat.completions.create(
                    model="smol", messages=LONG, max_tokens=tokens, stream=streaming, extra_body={"ignore_eos": True}
                )
            )
            if streaming:
                stream = await asking
                for _ in range(8):
                    await anext(stream)
            await asyncio.to_thread(until, "the engine works on it", lambda: busy() == 1, 20)
            if streaming:
                await stream.close()
            else:
                asking.cancel()

    assert busy() == 0
    asyncio.run(leave())
    left = time.monotonic()
    until("the gateway's own count is back at zero", lambda: cluster.in_flight() == 0, 2)
    if streaming or kind.aborts_plain:
        until("the slot is free", lambda: busy() == 0, 2 - (time.monotonic() - left))
    else:
        until("the engine has written an answer for nobody", lambda: busy() == 0, 60)


@dataclass
class Fate:
    """What became of one request."""

    first_content: float | None = None
    error: Exception | None = None
    pieces: list[str] = field(default_factory=list)


async def ask(client: AsyncOpenAI, max_tokens: int, messages: list[dict[str, str]] = LONG) -> Fate:
    fate = Fate()
    try:
        stream = await client.chat.completions.create(
            model="smol", messages=messages, max_tokens=max_tokens, stream=True, extra_body={"ignore_eos": True}
        )
        async for chunk in stream:
            if chunk.choices and chunk.choices[0].delta.content:
                fate.first_content = fate.first_content or time.monotonic()
                fate.pieces.append(chunk.choices[0].delta.content)
    except Exception as error:  # judged by the test
        fate.error = error
    return fate


def test_kill_9_of_a_replica_under_load(cluster: Up, kind: Kind) -> None:
    """Requests without content succeed on the other replica, the others get an honest error, the replica returns."""
    victim, other = cluster.wait_ready(2)
    # A prompt that takes a moment: some requests have had no content yet when the replica dies.
    slow = [{"role": "user", "content": "Tell me about " + ", ".join(f"item {number}" for number in range(150))}]

    async def story() -> tuple[float, list[Fate], list[Fate]]:
        async with cluster.async_client() as client:
            early = [asyncio.ensure_future(ask(client, 400)) for _ in range(6)]
            await asyncio.to_thread(until, "the victim streams", lambda: _load(cluster, victim["id"]) >= 2, 30)
            await asyncio.sleep(1.5)  # for first tokens: these have content
            late = [asyncio.ensure_future(ask(client, 16, slow)) for _ in range(12)]
            await asyncio.to_thread(until, "the victim has more", lambda: _load(cluster, victim["id"]) >= 4, 30)
            os.kill(victim["pid"], signal.SIGKILL)
            killed = time.monotonic()
            return killed, await asyncio.gather(*early), await asyncio.gather(*late)

    retries = metric(cluster.admin("/metrics"), "kilocard_retries_total")
    killed, early, late = asyncio.run(story())
    fates = early + late
    broken = [fate for fate in fates if fate.error is not None]
    assert broken, "nothing was streaming on the killed replica: the test shows nothing"
    for fate in broken:
        assert fate.first_content is not None, f"a request without content failed: {fate.error!r}"
        assert fate.first_content < killed + 0.5, f"failed long after the kill: {fate.error!r}"
        assert isinstance(fate.error, APIError), repr(fate.error)
    assert metric(cluster.admin("/metrics"), "kilocard_retries_total") > retries, "no request was moved"
    assert all(len(fate.pieces) > 0 for fate in fates if fate.error is None)

    # On its own again: another process under the same name.
    def back() -> dict[str, Any] | None:
        return next((r for r in cluster.ready() if r["id"] == victim["id"] and r["pid"] != victim["pid"]), None)

    returned = until("the killed replica is ready again", back, 300, pause=0.5)
    assert {other["pid"], returned["pid"]} == {replica["pid"] for replica in cluster.ready()}

    async def later() -> list[Fate]:
        async with cluster.async_client() as client:
            return list(await asyncio.gather(*(ask(client, 24) for _ in range(8))))

    assert [fate.error for fate in asyncio.run(later())] == [None] * 8
    served = metric(page(f"{returned['url']}/metrics"), kind.generated)
    assert served > 0, "the replica came back but gets no work"


def _load(cluster: Up, replica: str) -> int:
    return next((int(row["in_flight"]) for row in cluster.replicas() if row["id"] == replica), 0)


def test_ctrl_c_ends_everything(cluster: Up) -> None:
    assert cluster.stop() == 0, cluster.said()
    assert until("no engine process is left", lambda: not cluster.left_over(), 5)
