"""What a request is charged, by how it ended. Numbers name the items of docs/faults-of-others.md."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kilocard.gateway.used import used
from kilocard.tenancy.usage import NOTHING, Tokens
from kilocard.wire.events import Usage
from kilocard.wire.relay import EventRelay

CONTENT = b'data: {"choices":[{"delta":{"content":"x"}}]}\n\n'


def ended(
    usage: Usage | None = None, *, stream: bool = False, said: Usage | None = None, content: int = 0, passed: int = 0
) -> Any:
    """An exchange at its end: `content` events through the relay, `passed` beside it, prompt estimated as 100."""
    relay = None
    if stream:
        relay = EventRelay(hide_usage=True)
        relay.feed(CONTENT * content)
        relay.usage = said or usage
    inbound = SimpleNamespace(uncounted_prompt=100)
    return SimpleNamespace(usage=usage, relay=relay, events=passed, inbound=inbound, sent_at=8.0)


def test_an_answer_in_one_piece_is_what_the_engine_says() -> None:
    assert used(ended(Usage(7, 3, 4)), "ok") == Tokens(7, 3, 4, estimated=False)
    assert used(ended(Usage(7, None, None)), "ok") == Tokens(7, 0, 0, estimated=False)


def test_21_an_answer_in_one_piece_that_nobody_counted_is_its_prompt_estimated() -> None:
    assert used(ended(), "ok") == Tokens(100, 0, 0, estimated=True)
    form = ended()
    form.inbound.uncounted_prompt = 0
    assert used(form, "ok") is NOTHING


def test_a_whole_stream_is_what_the_engine_says() -> None:
    assert used(ended(Usage(7, 3, 4), stream=True, content=9), "ok") == Tokens(7, 3, 4, estimated=False)


def test_21_a_whole_stream_of_an_engine_that_says_nothing_is_estimated() -> None:
    assert used(ended(stream=True, content=4, passed=5), "ok") == Tokens(100, 9, 0, estimated=True)
    assert used(ended(Usage(None, 3), stream=True, content=4), "ok") == Tokens(100, 3, 0, estimated=True)


def test_21_who_leaves_in_mid_stream_is_charged_what_was_sent() -> None:
    """litellm#36008: under-billed. Anthropic's first event says `output_tokens: 1`: that is not the end of it."""
    assert used(ended(stream=True, content=4, passed=5), "client_gone") == Tokens(100, 9, 0, estimated=True)
    first = ended(Usage(60, 1, 20), stream=True, content=40)
    assert used(first, "client_gone") == Tokens(60, 40, 20, estimated=True)
    running_count = ended(stream=True, said=Usage(60, 90), content=40)
    assert used(running_count, "client_gone") == Tokens(60, 90, 0, estimated=True)


def test_who_leaves_before_the_answer_begins_is_charged_the_prompt() -> None:
    assert used(ended(stream=True), "client_gone") == Tokens(100, 0, 0, estimated=True)
    assert used(ended(), "client_gone") == Tokens(100, 0, 0, estimated=True)
    waits_here = ended()
    waits_here.sent_at = 0.0  # in the gateway's queue: no engine has worked for it
    assert used(waits_here, "client_gone") is NOTHING


@pytest.mark.parametrize("outcome", ["client_error", "client_gone"])
def test_a_refusal_in_a_stream_is_free(outcome: str) -> None:
    refused = ended(stream=True)
    refused.relay.feed(b'data: {"error":{"message":"too long","code":400}}\n\n')
    assert used(refused, outcome) is NOTHING


@pytest.mark.parametrize("outcome", ["refused", "timeout", "upstream_error", "client_error"])
def test_a_failure_that_showed_nothing_is_free(outcome: str) -> None:
    assert used(ended(), outcome) is NOTHING
    assert used(ended(stream=True), outcome) is NOTHING


def test_a_stream_that_broke_is_charged_what_was_shown() -> None:
    assert used(ended(stream=True, content=4), "upstream_error") == Tokens(100, 4, 0, estimated=True)
