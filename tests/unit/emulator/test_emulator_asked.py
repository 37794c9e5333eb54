"""Request bodies: token counts, and the limits in vLLM's words."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kilocard.emulator import asked
from kilocard.emulator.failure import Refused


def chat(**fields: Any) -> asked.Chat:
    return asked.read(json.dumps({"messages": [{"role": "user", "content": "hi"}], **fields}).encode(), asked.Chat)


@pytest.mark.parametrize(
    ("content", "tokens"),
    [
        ("12345678", 2),
        ("123456789", 3),
        ("千卡", 2),  # six bytes
        (None, 1),
        ([{"type": "text", "text": "1234"}, {"type": "image_url", "image_url": {"url": "data:…"}}], 257),
    ],
)
def test_four_bytes_are_a_token(content: Any, tokens: int) -> None:
    assert asked.chat_tokens(chat(messages=[{"role": "user", "content": content}])) == tokens


@pytest.mark.parametrize(("prompt", "tokens"), [("abcd", 1), ("", 1), (["abcdefgh"], 2), ([5, 6, 7], 3), ([[5, 6]], 2)])
def test_prompts_of_completions(prompt: Any, tokens: int) -> None:
    assert asked.prompt_tokens(prompt) == tokens


@pytest.mark.parametrize("prompt", [[], ["a", "b"], [1, "a"]])
def test_prompts_that_are_refused(prompt: Any) -> None:
    with pytest.raises(Refused):
        asked.prompt_tokens(prompt)


@pytest.mark.parametrize(
    ("fields", "tokens"),
    [
        ({}, None),
        ({"max_tokens": 7}, 7),
        ({"max_tokens": 7, "max_completion_tokens": 5}, 5),
        ({"max_tokens": 90}, 90),
    ],
)
def test_how_much_is_asked_for(fields: dict[str, Any], tokens: int | None) -> None:
    assert asked.output_tokens(chat(**fields), 10, 100, None) == tokens


def test_a_default_is_cut_to_the_room_but_a_wish_is_refused() -> None:
    assert asked.output_tokens(chat(), 90, 100, 16) == 10
    with pytest.raises(Refused, match="too large: 91") as caught:
        asked.output_tokens(chat(max_tokens=91), 10, 100, None)
    assert caught.value.status == 400
    with pytest.raises(Refused, match="maximum context length is 100"):
        asked.output_tokens(chat(max_tokens=1), 100, 100, None)


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"messages": 1}', b'{"max_tokens": "many"}', b"\xff"])
def test_bodies_that_are_refused(body: bytes) -> None:
    with pytest.raises(Refused) as caught:
        asked.read(body, asked.Chat)
    assert caught.value.status == 400


def test_unknown_fields_are_ignored() -> None:
    assert chat(temperature=0.5, tools=[], seed=1).n is None
