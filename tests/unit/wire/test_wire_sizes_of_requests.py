"""What a body says of its size: pictures, choices, lists of prompts."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kilocard.wire.peek import peek, prompts
from kilocard.wire.tokens import PICTURE_BYTES, text_bytes


def chat(*parts: object) -> bytes:
    return json.dumps({"model": "m", "messages": [{"role": "user", "content": list(parts)}]}).encode()


def picture(size: int) -> dict[str, Any]:
    url = "data:image/png;base64," + base64.b64encode(bytes(size)).decode()
    return {"type": "image_url", "image_url": {"url": url}}


def test_a_picture_counts_as_a_picture_whatever_its_size() -> None:
    small, large = chat(picture(30_000)), chat(picture(3_000_000))
    assert abs(text_bytes(small) - text_bytes(large)) < 4
    assert PICTURE_BYTES < text_bytes(large) < PICTURE_BYTES + 200
    two = chat(picture(30_000), {"type": "text", "text": "x" * 500}, picture(50_000))
    assert 2 * PICTURE_BYTES + 500 < text_bytes(two) < 2 * PICTURE_BYTES + 900


def test_a_small_picture_counts_as_it_is() -> None:
    body = chat(picture(600))
    assert text_bytes(body) == len(body)


def test_text_that_calls_itself_a_picture_is_text() -> None:
    body = chat({"type": "text", "text": ";base64," + "many words " * 2000})
    assert text_bytes(body) == len(body)


@given(st.binary(max_size=300), st.integers(0, 3), st.booleans())
def test_it_is_never_more_than_the_body_and_never_loops(noise: bytes, times: int, closed: bool) -> None:
    body = (noise + b";base64," + b"A" * 5000 + (b'"' if closed else b"")) * times + noise
    assert 0 <= text_bytes(body) <= len(body)


@pytest.mark.parametrize(
    ("fields", "choices"),
    [
        ({}, 1),
        ({"n": 4}, 4),
        ({"n": 2, "best_of": 5}, 5),
        ({"n": None, "best_of": None}, 1),
        ({"n": 0}, 1),
        ({"n": "7"}, 1),  # an engine refuses it or takes 1
        ({"n": True}, 1),
        ({"n": 10**30}, 10**30),
    ],
)
def test_choices(fields: dict[str, Any], choices: int) -> None:
    assert peek(json.dumps({"model": "m", **fields}).encode()).choices == choices


@pytest.mark.parametrize(
    ("prompt", "count"),
    [("a", 1), (["a"], 1), (["a", "b"], 2), ([1, 2, 3], 1), ([[1, 2], [3]], 2), ([], 1), (None, 1), ({"x": 1}, 1)],
)
def test_prompts_of_a_completion(prompt: object, count: int) -> None:
    assert prompts(json.dumps({"model": "m", "prompt": prompt}).encode()) == count


def test_no_prompt_is_one_prompt() -> None:
    assert prompts(b'{"model": "m"}') == 1
