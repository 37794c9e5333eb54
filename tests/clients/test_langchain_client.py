"""LangChain's chat models for both APIs."""

from __future__ import annotations

import asyncio

import pytest
from langchain_anthropic import ChatAnthropic
from langchain_core.language_models import BaseChatModel
from langchain_openai import ChatOpenAI

from conftest import Door


@pytest.fixture(params=["openai", "anthropic"])
def chat(request: pytest.FixtureRequest, door: Door) -> BaseChatModel:
    if request.param == "openai":
        return ChatOpenAI(base_url=door.openai, api_key=door.key, model=door.model, max_tokens=16, stream_usage=True)
    return ChatAnthropic(base_url=door.root, api_key=door.key, model_name=door.model, max_tokens_to_sample=16)


def test_invoke(chat: BaseChatModel) -> None:
    answer = chat.invoke("What is a GPU?")
    assert answer.text
    assert answer.usage_metadata is not None
    assert answer.usage_metadata["output_tokens"] == 16


def test_stream_with_usage(chat: BaseChatModel) -> None:
    pieces = list(chat.stream("What is a GPU?"))
    whole = pieces[0]
    for piece in pieces[1:]:
        whole += piece
    assert len(pieces) > 3
    assert whole.text
    assert whole.usage_metadata is not None
    assert whole.usage_metadata["output_tokens"] == 16


def test_batch(chat: BaseChatModel) -> None:
    assert all(answer.text for answer in chat.batch(["One?", "Two?", "Three?", "Four?"]))


def test_async_stream(chat: BaseChatModel) -> None:
    async def ask() -> list[object]:
        return [piece async for piece in chat.astream("What is a GPU?")]

    assert asyncio.run(ask())
