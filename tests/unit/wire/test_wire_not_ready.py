"""as-09: what engines say while their model is loading, and what only sounds like it."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kilocard.wire.not_ready import LONGEST, is_not_ready, lacks_model


@pytest.mark.parametrize(
    "message",
    [
        "Model x is not ready yet.",
        "Model with name qwen/7b is not ready.",
        "Loading model",
        "The model `m` is currently loading",
        "Model m is still loading.",
        "the server is not ready",
        "model m is not loaded",
        "Model m is being loaded",
        "The model is still loading, please try again later",
        "Service is starting up",
        "Model m is initializing.",
        "The server is not ready to accept requests",
        "Server is not ready. Please retry later.",
    ],
)
def test_what_is_not_ready(message: str) -> None:
    shapes = {"error": message}, {"error": {"message": message, "code": 503}}, {"message": message}, {"detail": message}
    for body in (*(json.dumps(shape).encode() for shape in shapes), message.encode() + b"\n"):
        assert is_not_ready(body)
        assert not lacks_model(body)


@pytest.mark.parametrize(
    "message",
    [
        "invalid value 'Model x is not ready yet.'",
        "Model x is not ready yet. Or is it? A client wrote this.",
        "This model's maximum context length is 4096 tokens",
        "model is required",
        "Model m is loaded",
        "Model m is loading weights that it has not",
        "Service is overloaded, please try again later",
        "",
    ],
)
def test_what_is_an_answer(message: str) -> None:
    body = json.dumps({"error": {"message": message}}).encode()
    assert not is_not_ready(body) and not lacks_model(body)


@pytest.mark.parametrize(
    "message", ["The model `m` does not exist.", "Model with name m does not exist.", "model 'm' not found"]
)
def test_what_lacks_the_model(message: str) -> None:
    assert lacks_model(json.dumps({"object": "error", "message": message}).encode())
    assert not is_not_ready(json.dumps({"error": message}).encode())


@given(st.binary(max_size=200))
def test_no_body_breaks_it(body: bytes) -> None:
    assert not is_not_ready(body) and not lacks_model(body)


def test_long_ones_are_not_read() -> None:
    body = json.dumps({"error": "Loading model", "more": "x" * LONGEST}).encode()
    assert not is_not_ready(body)
    assert not is_not_ready(b"[" * LONGEST), "and depth breaks nothing"
