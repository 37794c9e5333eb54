"""Anthropic's own client, against an engine that speaks /v1/messages."""

from __future__ import annotations

import anthropic
import pytest
from anthropic import Anthropic

from conftest import NARROW_KEY, Door

ASK = [{"role": "user", "content": "What is a GPU?"}]


@pytest.fixture
def client(door: Door) -> Anthropic:
    return Anthropic(base_url=door.root, api_key=door.key)


def test_message(client: Anthropic, door: Door) -> None:
    answer = client.messages.create(model=door.model, max_tokens=16, messages=ASK)
    assert answer.content[0].type == "text"
    assert answer.content[0].text
    assert answer.usage.output_tokens == 16
    assert answer._request_id or answer.id


def test_stream(client: Anthropic, door: Door) -> None:
    with client.messages.stream(model=door.model, max_tokens=16, messages=ASK) as stream:
        text = "".join(stream.text_stream)
        final = stream.get_final_message()
    assert text == final.content[0].text
    assert final.stop_reason == "max_tokens"


def test_count_tokens(client: Anthropic, door: Door) -> None:
    assert client.messages.count_tokens(model=door.model, messages=ASK).input_tokens > 5


def test_errors_are_the_clients_own_classes(client: Anthropic, door: Door) -> None:
    with pytest.raises(anthropic.NotFoundError):
        client.messages.create(model="no-such-model", max_tokens=5, messages=ASK)
    with pytest.raises(anthropic.AuthenticationError):
        Anthropic(base_url=door.root, api_key="wrong").messages.create(model=door.model, max_tokens=5, messages=ASK)
    with pytest.raises(anthropic.PermissionDeniedError):
        Anthropic(base_url=door.root, api_key=NARROW_KEY).messages.create(model="secret", max_tokens=5, messages=ASK)


def test_a_bearer_token_is_as_good(door: Door) -> None:
    client = Anthropic(base_url=door.root, auth_token=door.key, api_key=None)
    assert client.messages.create(model=door.model, max_tokens=4, messages=ASK).content
