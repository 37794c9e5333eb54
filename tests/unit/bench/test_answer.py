"""Bytes of one answer, in whatever pieces, into a record."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kilocard.bench import failures
from kilocard.bench.answer import Answer
from kilocard.bench.record import RequestRecord

SSE = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\n"
JSON = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
DONE = b"data: [DONE]\n\n"


def event(delta: dict[str, Any] | None, finish: str | None = None, **more: Any) -> bytes:
    choices = [] if delta is None else [{"index": 0, "delta": delta, "finish_reason": finish}]
    return b"data: " + json.dumps({"id": "c", "choices": choices, **more}).encode() + b"\n\n"


USAGE = event(None, usage={"prompt_tokens": 7, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 4}})


def chunked(*bodies: bytes) -> bytes:
    return b"".join(b"%x\r\n%b\r\n" % (len(body), body) for body in bodies) + b"0\r\n\r\n"


def sized(head: bytes, body: bytes) -> bytes:
    return head + b"Content-Length: %d\r\n\r\n%b" % (len(body), body)


def stream(*bodies: bytes) -> bytes:
    return SSE + b"Transfer-Encoding: chunked\r\n\r\n" + chunked(*bodies)


def record() -> RequestRecord:
    return RequestRecord(0.0, 0.0, 7, 3)


def read(data: bytes, cuts: list[int] | None = None) -> Answer:
    answer = Answer(record())
    at = 0
    for cut in [*(cuts or []), len(data)]:
        if cut > at and not answer.complete:
            answer.feed(data[at:cut], 1.0)
            at = cut
    return answer


def read_timed(*pieces: tuple[float, bytes]) -> Answer:
    answer = Answer(record())
    answer.feed(SSE + b"Transfer-Encoding: chunked\r\n\r\n", 0.5)
    for now, piece in pieces:
        answer.feed(b"%x\r\n%b\r\n" % (len(piece), piece), now)
    if not answer.complete:
        answer.feed(b"0\r\n\r\n", pieces[-1][0])
    return answer


def test_a_stream_of_three_tokens() -> None:
    seen = read_timed(
        (1.0, event({"role": "assistant", "content": ""})),
        (1.5, event({"content": "a"})),
        (1.75, event({"content": "b"})),
        (2.0, event({"content": "c"})),
        (2.0, event({}, "length") + USAGE + DONE),
    ).record
    assert seen.error is None
    assert (seen.first_s, seen.last_s, seen.done_s) == (1.5, 2.0, 2.0)
    assert list(seen.gaps_s) == [0.25, 0.25]
    assert (seen.input_tokens, seen.output_tokens, seen.cached_tokens) == (7, 3, 4)
    assert (seen.first_kind, seen.finish_reason, seen.status) == ("content", "length", 200)


@pytest.mark.parametrize(
    ("delta", "kind"),
    [
        ({"content": "x"}, "content"),
        ({"reasoning_content": "x"}, "reasoning"),
        ({"reasoning": "x"}, "reasoning"),
        ({"tool_calls": [{"index": 0, "function": {"name": "f", "arguments": ""}}]}, "tool_calls"),
        ({"refusal": "no"}, "content"),
    ],
)
def test_bn_03_first_token_is_what_carries_something_and_says_which(delta: dict[str, Any], kind: str) -> None:
    """A reasoning or tool parser that holds text back sends empty deltas meanwhile: they are no tokens."""
    empty = event({"content": "", "reasoning_content": None, "tool_calls": []})
    seen = read_timed((1.0, empty), (2.0, empty), (3.0, event(delta)), (4.0, event({}, "stop") + DONE)).record
    assert (seen.first_s, seen.first_kind, seen.last_s) == (3.0, kind, 3.0)


def test_bn_03_text_held_back_until_the_end_shows() -> None:
    seen = read_timed((1.0, event({"content": "a"})), (9.0, event({"content": "b" * 99}, "stop") + DONE)).record
    assert seen.last_share == 0.99


def test_events_joined_by_tcp_are_arrivals_of_their_own() -> None:
    seen = read(stream(event({"content": "a"}) + event({"content": "b"}), event({"content": "c"}, "stop"), DONE)).record
    assert list(seen.gaps_s) == [0.0, 0.0]


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_any_cut_gives_the_same_record(data: st.DataObject) -> None:
    line_end = data.draw(st.sampled_from([b"\n", b"\r\n", b"\r"]))
    reasoning = event({"reasoning_content": "x"}).replace(b"data: ", b"data:")
    body = b": ping\n\n" + reasoning + event({"content": "grüße 你好"}) + event({"content": "\n\n"})
    body += b'data: {"choices":\ndata: [{"delta":{"content":"two lines"}}]}\n\n'
    body += b"event: done\nid: 3\n" + event({}, "stop") + USAGE + DONE
    whole = stream(body.replace(b"\n", line_end))
    cuts = sorted(data.draw(st.lists(st.integers(1, len(whole)), max_size=60)))
    if data.draw(st.booleans()):
        cuts = list(range(1, len(whole)))
    assert read(whole, cuts).record == read(whole).record
    assert read(whole).record.error is None
    assert len(read(whole).record.gaps_s) == 3


def test_an_answer_that_is_no_stream_has_one_arrival() -> None:
    body = {
        "object": "chat.completion",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "hello"}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 7, "completion_tokens": 3},
    }
    seen = read(sized(JSON, json.dumps(body).encode())).record
    assert seen.error is None
    assert (seen.first_s, seen.last_s, seen.done_s, seen.last_share) == (1.0, 1.0, 1.0, 1.0)
    assert (seen.output_tokens, seen.finish_reason) == (3, "stop")


def test_plain_completions_and_usage_in_each_event() -> None:
    def piece(text: str, count: int, finish: str | None = None) -> bytes:
        choice = {"index": 0, "text": text, "finish_reason": finish}
        usage = {"prompt_tokens": 7, "completion_tokens": count}
        return b"data: " + json.dumps({"choices": [choice], "usage": usage}).encode() + b"\n\n"

    seen = read(stream(piece("a", 1), piece("b", 2), piece("", 2, "length"), DONE)).record
    assert (seen.error, seen.input_tokens, seen.output_tokens, len(seen.gaps_s)) == (None, 7, 2, 1)


def test_a_stream_under_another_content_type_is_still_one() -> None:
    body = event({"content": "a"}, "stop") + DONE
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n"
    assert read(sized(head, body)).record.error is None


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (sized(b"HTTP/1.1 429 Too Many Requests\r\n", b'{"error":{"message":"slow down"}}'), "refused: 429"),
        (sized(b"HTTP/1.1 503 X\r\n", b"<html>"), "refused: 503"),
        (stream(event({"content": "a"})), failures.NO_DONE),
        (stream(event({}, "stop"), DONE), failures.NO_TOKENS),
        (stream(event({"content": "a"}), b'data: {"error":{"code":500,"message":"x"}}\n\n'), "error event: 500"),
        (stream(b'data: {"object":"error","message":"x","code":40303}\n\n'), "error event: 40303"),
        (stream(b'error: {"code":500,"message":"x","type":"server_error"}\n\n'), "error event: 500"),
        (stream(b"data: {oops\n\n"), failures.UNREADABLE),
        (b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 1\r\n\r\nx", failures.COMPRESSED),
        (b"SSH-2.0-OpenSSH\r\n", failures.NOT_HTTP),
        (SSE + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n", failures.NOT_HTTP),
    ],
)
def test_what_went_wrong_in_words(data: bytes, error: str) -> None:
    for cuts in (None, list(range(1, len(data)))):
        answer = read(data, cuts)
        assert answer.complete
        assert answer.record.error == error


def test_the_error_llama_cpp_sends_as_a_field_of_its_own() -> None:
    answer = read(stream(b'error: {"code":500,"message":"no room","type":"server_error"}\n\n'))
    assert (answer.record.error, answer.message) == ("error event: 500", "no room")


def test_an_answer_without_length_ends_with_the_connection() -> None:
    answer = read(SSE + b"Connection: close\r\n\r\n" + event({"content": "a"}, "stop") + DONE)
    assert not answer.complete
    assert answer.eof(2.0)
    assert (answer.record.error, answer.record.done_s, answer.keep_alive) == (None, 2.0, False)


def test_a_connection_that_ends_within_chunks_is_no_end() -> None:
    answer = read(stream(event({"content": "a"}, "stop"), DONE)[:-5])
    assert not answer.eof(2.0)


def test_bytes_after_the_answer_end_the_connection() -> None:
    whole = stream(event({"content": "a"}, "stop"), DONE)
    assert read(whole).keep_alive
    assert not read(whole + b"HTTP/1.1 200 OK\r\n").keep_alive


def test_100_continue_is_not_the_answer() -> None:
    assert read(b"HTTP/1.1 100 Continue\r\n\r\n" + stream(event({"content": "a"}, "stop"), DONE)).record.error is None
