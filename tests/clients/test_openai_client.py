"""OpenAI's own client, as its documentation uses it."""

from __future__ import annotations

import asyncio
import json

import openai
import pytest
from openai import AsyncOpenAI, OpenAI

from conftest import NARROW_KEY, Door

ASK = [{"role": "user", "content": "What is a GPU?"}]


@pytest.fixture
def client(door: Door) -> OpenAI:
    return OpenAI(base_url=door.openai, api_key=door.key)


def test_chat(client: OpenAI, door: Door) -> None:
    answer = client.chat.completions.create(model=door.model, messages=ASK, max_tokens=24, temperature=0)
    assert answer.choices[0].message.content
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 24
    assert answer._request_id, "an answer can be named when something is wrong with it"


def test_stream_and_its_usage(client: OpenAI, door: Door) -> None:
    stream = client.chat.completions.create(
        model=door.model,
        messages=ASK,
        max_tokens=24,
        temperature=0,
        stream=True,
        stream_options={"include_usage": True},
    )
    text, usage = "", None
    for chunk in stream:
        for choice in chunk.choices:
            text += choice.delta.content or ""
        usage = chunk.usage or usage
    plain = client.chat.completions.create(model=door.model, messages=ASK, max_tokens=24, temperature=0)
    assert text == plain.choices[0].message.content
    assert usage is not None
    assert usage.completion_tokens == 24


def test_the_stream_helper(client: OpenAI, door: Door) -> None:
    with client.chat.completions.stream(model=door.model, messages=ASK, stop=["."], temperature=0) as stream:
        kinds = {event.type for event in stream}
        final = stream.get_final_completion()
    assert {"chunk", "content.delta", "content.done"} <= kinds
    assert final.choices[0].message.content


def test_completions(client: OpenAI, door: Door) -> None:
    answer = client.completions.create(model=door.model, prompt="One, two, three,", max_tokens=8, temperature=0)
    assert answer.choices[0].text


def test_responses(client: OpenAI, door: Door) -> None:
    answer = client.responses.create(model=door.model, input="What is a GPU?", max_output_tokens=16)
    assert answer.output_text
    with client.responses.create(model=door.model, input="Hello!", max_output_tokens=16, stream=True) as stream:
        kinds = [event.type for event in stream]
    assert kinds[-1] in {"response.completed", "response.incomplete"}
    assert "response.output_text.delta" in kinds


def test_structured_output(client: OpenAI, door: Door) -> None:
    schema = {
        "type": "object",
        "properties": {"name": {"type": "string", "maxLength": 20}, "year": {"type": "integer", "maximum": 2100}},
        "required": ["name", "year"],
        "additionalProperties": False,
    }
    answer = client.chat.completions.create(
        model=door.model,
        messages=[{"role": "user", "content": "A famous computer, as JSON."}],
        max_tokens=120,
        response_format={"type": "json_schema", "json_schema": {"name": "computer", "schema": schema}},
    )
    assert set(json.loads(answer.choices[0].message.content or "")) == {"name", "year"}


def test_many_at_once(door: Door) -> None:
    async def ask() -> list[str | None]:
        async with AsyncOpenAI(base_url=door.openai, api_key=door.key) as client:
            answers = await asyncio.gather(
                *(client.chat.completions.create(model=door.model, messages=ASK, max_tokens=8) for _ in range(12))
            )
        return [answer.choices[0].message.content for answer in answers]

    assert all(asyncio.run(ask()))


def test_models(client: OpenAI, door: Door) -> None:
    assert sorted(model.id for model in client.models.list()) == ["secret", "smol"]
    assert client.models.retrieve("smol").id == "smol"
    narrow = OpenAI(base_url=door.openai, api_key=NARROW_KEY)
    assert [model.id for model in narrow.models.list()] == ["smol"]


def test_errors_are_the_clients_own_classes(client: OpenAI, door: Door) -> None:
    with pytest.raises(openai.NotFoundError) as missing:
        client.chat.completions.create(model="no-such-model", messages=ASK)
    assert missing.value.code == "model_not_found"
    with pytest.raises(openai.AuthenticationError):
        OpenAI(base_url=door.openai, api_key="wrong").models.list()
    with pytest.raises(openai.PermissionDeniedError):
        OpenAI(base_url=door.openai, api_key=NARROW_KEY).chat.completions.create(model="secret", messages=ASK)
    with pytest.raises(openai.BadRequestError):
        client.chat.completions.create(model=door.model, messages="not a list")  # type: ignore[call-overload]  # on purpose
