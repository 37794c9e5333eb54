"""LiteLLM's client (its SDK; its proxy is a peer of ours, not a client)."""

from __future__ import annotations

import asyncio

import litellm
import pytest

from conftest import Door

# Its own code warns about its own dependencies as it is imported and used.
pytestmark = pytest.mark.filterwarnings("ignore")

ASK = [{"role": "user", "content": "What is a GPU?"}]


@pytest.fixture(params=["openai", "anthropic"])
def where(request: pytest.FixtureRequest, door: Door) -> dict[str, str]:
    base = door.openai if request.param == "openai" else door.root
    return {"model": f"{request.param}/{door.model}", "api_base": base, "api_key": door.key}


def test_completion(where: dict[str, str]) -> None:
    answer = litellm.completion(messages=ASK, max_tokens=16, **where)
    assert answer.choices[0].message.content
    assert answer.usage.completion_tokens == 16


def test_stream(where: dict[str, str]) -> None:
    chunks = list(litellm.completion(messages=ASK, max_tokens=16, stream=True, **where))
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
    assert chunks[-1].choices[0].finish_reason == "length"


def test_async(where: dict[str, str]) -> None:
    answer = asyncio.run(litellm.acompletion(messages=ASK, max_tokens=16, **where))
    assert answer.choices[0].message.content


def test_errors(door: Door, where: dict[str, str]) -> None:
    with pytest.raises(litellm.AuthenticationError):
        litellm.completion(messages=ASK, max_tokens=4, **where | {"api_key": "wrong"})
    with pytest.raises(litellm.NotFoundError):
        litellm.completion(
            messages=ASK, max_tokens=4, **where | {"model": "openai/no-such-model", "api_base": door.openai}
        )
