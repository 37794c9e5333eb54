"""What a body says of its size: pictures, choices, lists of prompts."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kilocard.wire.peek import peek, prompts
from kilocard.wire.tokens import MOST_TOKENS, PICTURE_BYTES, text_bytes


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
        ({"n": "7"}, 7),  # vLLM reads it as 7 (pydantic), others refuse it
        ({"n": " 7.0 "}, 7),
        ({"n": 7.0}, 7),
        ({"n": "seven"}, 1),
        ({"n": "9" * 5000}, 1),
        ({"n": -3, "best_of": [2]}, 1),
        ({"n": True}, 1),
        ({"n": 2, "n_cmpl": 5}, 5),  # llama.cpp's own word for it
        ({"n": 10**30}, MOST_TOKENS),
    ],
)
def test_choices(fields: dict[str, Any], choices: int) -> None:
    assert peek(json.dumps({"model": "m", **fields}).encode()).choices == choices


@pytest.mark.parametrize(
    ("fields", "bound"),
    [
        ({"max_tokens": 3, "max_completion_tokens": 20}, 20),  # vLLM's and llama.cpp's chats take the newer word …
        ({"max_tokens": 20, "max_completion_tokens": 3}, 20),  # … its completions, and transformers, the older
        ({"max_tokens": 20, "max_completion_tokens": 0}, 20),  # where 0 is no word
        ({"max_completion_tokens": 0}, None),  # nor alone, to SGLang, which then has no bound at all
        ({"max_tokens": 3, "n_predict": 20}, 20),  # llama.cpp's own word goes before all others there
        ({"max_tokens": "500"}, 500),  # pydantic reads texts …
        ({"max_tokens": "+5_0.0"}, 50),
        ({"max_tokens": 500.0}, 500),  # … and floats as numbers
        ({"max_tokens": 3.7}, 4),
        ({"max_tokens": 0}, 0),
        ({"max_tokens": True}, 1),
        ({"max_tokens": 1e300}, MOST_TOKENS),
        ({"max_tokens": None, "max_output_tokens": 9}, 9),
        ({"max_tokens": None}, None),
        ({"max_tokens": -1}, None),
        ({"max_tokens": 5, "n_predict": -1}, None),  # -1 is no end, to llama.cpp
        ({"max_tokens": "5e3"}, None),
        ({"max_tokens": [5]}, None),
    ],
)
def test_the_bound_of_an_answer_is_the_most_that_any_engine_reads(fields: dict[str, Any], bound: int | None) -> None:
    seen = peek(json.dumps({"model": "m", **fields}).encode())
    assert (seen.output_tokens, seen.limited) == ((256, False) if bound is None else (bound, True))


def test_no_bound_beside_a_large_one_is_at_least_that() -> None:
    assert peek(b'{"max_tokens":5000,"n_predict":-1}').output_tokens == 5000


@given(st.text("0123456789+-_ ", max_size=9))
def test_a_text_that_is_a_number_is_read_as_that_number(text: str) -> None:
    try:
        number = int(text)
    except ValueError:
        return
    seen = peek(json.dumps({"max_tokens": text}).encode())
    assert (seen.output_tokens, seen.limited) == ((number, True) if number >= 0 else (256, False))


@pytest.mark.parametrize(("text", "bound"), [("0" * 10**6 + "7", 7), ("0" * 10**6, 0), ("0" * 10**6 + "x", 256)])
def test_a_long_text_is_read_in_one_go(text: str, bound: int) -> None:
    assert peek(json.dumps({"max_tokens": text}).encode()).output_tokens == bound


@pytest.mark.parametrize(
    ("prompt", "count"),
    [("a", 1), (["a"], 1), (["a", "b"], 2), ([1, 2, 3], 1), ([[1, 2], [3]], 2), ([], 1), (None, 1), ({"x": 1}, 1)],
)
def test_prompts_of_a_completion(prompt: object, count: int) -> None:
    assert prompts(json.dumps({"model": "m", "prompt": prompt}).encode()) == count


def test_prompts_as_embeddings_are_prompts_too() -> None:
    assert prompts(b'{"prompt_embeds": ["AAA", "BBB"]}') == 2
    assert prompts(b'{"prompt": "a", "prompt_embeds": "AAA"}') == 2
    assert prompts(b'{"prompt": null, "prompt_embeds": null}') == 1


def test_no_prompt_is_one_prompt() -> None:
    assert prompts(b'{"model": "m"}') == 1


@pytest.mark.parametrize("digits", [13, 30, 400, 900])
@pytest.mark.parametrize("quote", ["", '"'])
@pytest.mark.parametrize("key", ["max_tokens", "max_completion_tokens", "n_predict", "n", "best_of", "n_cmpl"])
def test_no_number_is_too_long_to_be_reckoned_with(key: str, quote: str, digits: int) -> None:
    """An int of 400 digits has no float."""
    seen = peek(f'{{"model":"m","{key}":{quote}{"9" * digits}{quote}}}'.encode())
    assert max(seen.output_tokens, seen.choices) == MOST_TOKENS
