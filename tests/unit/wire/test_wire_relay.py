"""The stream relay: bytes pass unchanged however they are cut; preamble, usage and errors are seen."""

from __future__ import annotations

import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kilocard.wire.events import Usage, body_usage, part_usage
from kilocard.wire.relay import MAX_EVENT, MAX_PREAMBLE, EventRelay


def event(**fields: object) -> bytes:
    return b"data: " + json.dumps(fields, separators=(",", ":"), ensure_ascii=False).encode() + b"\n\n"


ROLE = event(id="1", choices=[{"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}])
HELLO = event(id="1", choices=[{"index": 0, "delta": {"content": "Hel"}, "finish_reason": None}])
WORLD = event(id="1", choices=[{"index": 0, "delta": {"content": "读 🙂"}, "finish_reason": None}])
STOP = event(id="1", choices=[{"index": 0, "delta": {}, "finish_reason": "stop"}])
USAGE = event(
    id="1",
    choices=[],
    usage={"prompt_tokens": 7, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 4}},
)
DONE = b"data: [DONE]\n\n"
STREAM = ROLE + HELLO + WORLD + STOP + USAGE + DONE


def run(relay: EventRelay, data: bytes, cuts: list[int]) -> bytes:
    edges = [0, *sorted({min(cut, len(data)) for cut in cuts}), len(data)]
    out = b"".join(relay.feed(data[a:b]) for a, b in itertools.pairwise(edges) if a < b)
    return out + relay.finish()


cuts = st.lists(st.integers(0, len(STREAM) + 40), max_size=60)


@given(cuts=cuts, ending=st.sampled_from([b"\n", b"\r\n", b"\r"]))
def test_bytes_pass_unchanged_however_they_are_cut(cuts: list[int], ending: bytes) -> None:
    data = STREAM.replace(b"\n", ending)
    assert run(EventRelay(hide_usage=False), data, cuts) == data


def test_one_byte_at_a_time() -> None:
    relay = EventRelay(hide_usage=False)
    assert run(relay, STREAM, list(range(len(STREAM)))) == STREAM
    assert relay.usage == Usage(7, 3, 4)


def test_a_usage_chunk_is_taken_out_with_its_own_line_ends() -> None:
    """The second half of a CRLF that is cut comes with the next event: one may be left over, none is missing."""
    data, usage = (text.replace(b"\n", b"\r\n") for text in (STREAM, USAGE))
    for cut in range(len(data)):
        out = run(EventRelay(hide_usage=True), data, [cut])
        assert out in (data.replace(usage, b""), data.replace(usage, b"\n")), cut


@given(cuts=cuts)
def test_a_usage_chunk_that_only_we_asked_for_is_taken_out_again(cuts: list[int]) -> None:
    relay = EventRelay(hide_usage=True)
    assert run(relay, STREAM, cuts) == STREAM.replace(USAGE, b"")
    assert relay.usage == Usage(prompt=7, output=3, cached=4)


@given(cuts=cuts)
def test_content_is_found_wherever_the_cuts_are(cuts: list[int]) -> None:
    relay = EventRelay(hide_usage=False)
    run(relay, STREAM, cuts)
    assert relay.content
    assert relay.events == 3  # two of text and the stop: about a token each. Usage and [DONE] are none


def test_done_is_no_token_however_it_comes() -> None:
    together, apart, alone = (EventRelay(hide_usage=False) for _ in range(3))
    together.feed(HELLO + HELLO + DONE)
    apart.feed(HELLO)
    apart.feed(HELLO)
    apart.feed(DONE)
    alone.feed(DONE)
    assert (together.events, apart.events, alone.events) == (2, 2, 0)
    assert together.done and apart.done and alone.done


def test_the_preamble_waits_for_the_first_content() -> None:
    relay = EventRelay(hide_usage=False)
    assert relay.feed(ROLE) == b""
    assert not relay.content
    assert relay.feed(HELLO) == ROLE + HELLO
    assert relay.content


def test_gw_20_a_preamble_is_held_up_to_a_bound_and_then_it_is_content() -> None:
    relay = EventRelay(hide_usage=False)
    sent = b""
    count = 0
    while not relay.content:
        sent += relay.feed(ROLE)
        count += 1
        assert len(ROLE) * count <= MAX_PREAMBLE + len(ROLE)
    assert count > 1 and sent == ROLE * count, "nothing is lost, and from here on there is no other start"


def test_a_second_replica_starts_anew_and_nothing_of_the_first_is_sent() -> None:
    relay = EventRelay(hide_usage=False)
    relay.feed(ROLE + b'data: {"cho')
    relay.restart(wary=False)
    other = ROLE.replace(b'"1"', b'"2"')
    assert relay.feed(other + HELLO) == other + HELLO


def test_the_end_of_a_stream_that_failed_is_not_that_of_the_next() -> None:
    """vLLM says [DONE] behind its error too."""
    for failed in (event(error={"code": 500}) + DONE, event(type="response.failed", response={"error": None})):
        relay = EventRelay(hide_usage=False)
        assert relay.feed(failed) == b"" and relay.error and relay.done
        relay.restart(wary=True)
        relay.feed(ROLE + HELLO)
        assert relay.content and not relay.done, "if this one dies now it is cut"
        assert relay.cut


def test_a_broken_stream_ends_on_an_events_edge() -> None:
    relay = EventRelay(hide_usage=False)
    assert relay.feed(ROLE + HELLO + WORLD[:20]) == ROLE + HELLO


def test_done_inside_the_text_is_text() -> None:
    tricky = event(choices=[{"delta": {"content": 'say data: [DONE]\n\nand "usage":{"prompt_tokens":1}'}}])
    relay = EventRelay(hide_usage=True)
    assert run(relay, ROLE + tricky + tricky + DONE, []) == ROLE + tricky + tricky + DONE
    assert relay.usage is None


def test_data_without_a_space_comments_and_many_data_lines() -> None:
    odd = (
        b": ping\n\n"
        b'event: x\r\ndata:{"choices":[{"delta":\r\ndata: {"content":"hi"}}]}\r\n\r\n'
        b'data:{"choices":[],"usage":{"prompt_tokens":2,"completion_tokens":9}}\n\n'
    )
    relay = EventRelay(hide_usage=False)
    assert run(relay, odd, [3, 20, 41]) == odd
    assert relay.usage == Usage(2, 9)


def test_a_comment_passes_at_once_but_is_no_content() -> None:
    relay = EventRelay(hide_usage=False)
    assert relay.feed(b": keep-alive\n\n") == b": keep-alive\n\n"
    assert not relay.content


@pytest.mark.parametrize(
    ("data", "prompt", "output"),
    [
        (event(type="response.completed", response={"usage": {"input_tokens": 5, "output_tokens": 6}}), 5, 6),
        (event(type="message_delta", delta={}, usage={"output_tokens": 8}), None, 8),
        (event(type="message_start", message={"usage": {"input_tokens": 4, "output_tokens": 1}}), 4, 1),
    ],
)
def test_usage_of_the_other_stream_shapes(data: bytes, prompt: int | None, output: int) -> None:
    relay = EventRelay(hide_usage=False)
    relay.feed(data)
    assert relay.usage == Usage(prompt, output)


@pytest.mark.parametrize(
    "last",
    [
        event(type="message_stop"),
        b'event: message_stop\ndata: {"type":"message_stop"          }\n\n',
        event(type="response.completed", response={"usage": {"input_tokens": 5, "output_tokens": 6}}),
        event(type="response.incomplete", response={"usage": {"input_tokens": 5, "output_tokens": 6}}),
    ],
)
@pytest.mark.parametrize("together", [False, True])
def test_other_shapes_have_an_end_too(last: bytes, together: bool) -> None:
    """Who leaves behind it has had all of the answer, and its tokens are those that the engine counted."""
    text = event(type="content_block_delta", delta={"text": "x"})
    relay = EventRelay(hide_usage=False)
    assert relay.feed(text) == text and not relay.done
    pieces = [text + last] if together else [text, last]
    assert b"".join(map(relay.feed, pieces)) == text + last
    assert relay.done and relay.events == 2


def test_text_that_speaks_of_the_end_is_none() -> None:
    relay = EventRelay(hide_usage=False)
    relay.feed(event(type="content_block_delta", delta={"text": '"type":"message_stop"'}) * 2)
    assert not relay.done and relay.events == 2


def test_usage_parts_are_merged_field_by_field() -> None:
    relay = EventRelay(hide_usage=False)
    relay.feed(event(type="message_start", message={"usage": {"input_tokens": 4, "output_tokens": 1}}))
    relay.feed(event(type="content_block_delta", delta={"text": "x"}))
    relay.feed(event(type="message_delta", usage={"output_tokens": 8}))
    assert relay.usage == Usage(4, 8)


def test_usage_beside_choices_is_counted_and_stays() -> None:
    last = event(choices=[{"delta": {}, "finish_reason": "stop"}], usage={"prompt_tokens": 1, "completion_tokens": 2})
    relay = EventRelay(hide_usage=True)
    assert run(relay, HELLO + last, []) == HELLO + last
    assert relay.usage == Usage(1, 2)


def test_an_engines_error_before_content_is_held_so_that_another_replica_can_try() -> None:
    relay = EventRelay(hide_usage=False)
    assert relay.feed(event(error={"message": "EngineDeadError", "code": 500})) == b""
    assert relay.error and not relay.content
    assert relay.feed(DONE) == b"", "the [DONE] after it is part of the failure"


def test_an_error_that_blames_the_request_is_an_answer() -> None:
    relay = EventRelay(hide_usage=False)
    blame = event(error={"message": "too long", "code": 400})
    assert relay.feed(blame) == blame
    assert relay.content and not relay.error
    assert relay.refused == 400


@pytest.mark.parametrize(
    ("error", "refused"),
    [
        ({"code": "invalid_prompt"}, 400),
        ({"code": 422}, 422),
        ({"code": "server_error"}, 0),
        ({"code": 500}, 0),
        (None, 0),
    ],
)
def test_a_response_that_failed_at_once_may_be_a_refusal(error: object, refused: int) -> None:
    relay = EventRelay(hide_usage=False)
    relay.feed(event(type="response.created", response={"status": "in_progress"}))
    relay.feed(event(type="response.failed", response={"error": error}))
    assert relay.refused == refused
    assert relay.error == (not refused)


def test_an_error_that_blames_the_request_behind_text_is_no_refusal_of_it() -> None:
    relay = EventRelay(hide_usage=False)
    relay.feed(HELLO + event(error={"message": "too long", "code": 400}))
    assert relay.content and not relay.error and not relay.refused


def test_an_error_after_content_is_passed_on_and_noted() -> None:
    relay = EventRelay(hide_usage=False)
    broken = event(error={"message": "EngineDeadError", "code": 500})
    assert relay.feed(HELLO) + relay.feed(broken) == HELLO + broken
    assert relay.error


def test_an_endless_line_passes_in_bounded_memory() -> None:
    relay = EventRelay(hide_usage=False)
    piece = b"x" * 65536
    total = sum(len(relay.feed(piece)) for _ in range(3 * MAX_EVENT // len(piece)))
    assert total >= 2 * MAX_EVENT
    assert len(relay.finish()) <= MAX_EVENT


@given(data=st.binary(max_size=300), cuts=st.lists(st.integers(0, 300), max_size=10))
def test_junk_passes_too(data: bytes, cuts: list[int]) -> None:
    assert run(EventRelay(hide_usage=True), data, cuts) == data or b"usage" in data


def test_anthropics_input_tokens_leave_out_the_cache_and_openais_do_not() -> None:
    anthropic = {"input_tokens": 10, "cache_read_input_tokens": 80, "cache_creation_input_tokens": 5}
    assert body_usage(json.dumps({"usage": anthropic | {"output_tokens": 3}}).encode()) == Usage(95, 3, 80)
    openai = {"input_tokens": 90, "input_tokens_details": {"cached_tokens": 80}, "output_tokens": 3}
    assert body_usage(json.dumps({"usage": openai}).encode()) == Usage(90, 3, 80)
    relay = EventRelay(hide_usage=False)
    relay.feed(event(type="message_start", message={"usage": anthropic | {"output_tokens": 1}}))
    relay.feed(event(type="content_block_delta", delta={"text": "x"}))
    relay.feed(event(type="message_delta", delta={}, usage={"output_tokens": 3}))
    assert relay.usage == Usage(95, 3, 80)


@pytest.mark.parametrize("count", [-1, -(10**30), 10**30, 1.5, True, "7"])
def test_counts_of_tokens_that_cannot_be_are_no_counts(count: object) -> None:
    """A negative one would give a tenant tokens back; a database has no room for the largest."""
    body = json.dumps({"usage": {"prompt_tokens": 3, "completion_tokens": count}}).encode()
    usage = body_usage(body)
    assert usage is None or usage.output is None


def test_usage_is_found_in_a_part_of_an_answer() -> None:
    data = b'0.1,0.2]}],"usage": {"prompt_tokens": 7, "total_tokens": 7, "prompt_tokens_details": {"cached_tokens": 3}}'
    for part in (data + b"}", data + b',"x":1}', b'{"usage":{"prompt_tokens":9}' + data, data[7:]):
        assert part_usage(part) == Usage(7, None, 3)


@pytest.mark.parametrize(
    "part",
    [
        b"",
        b'{"usage": {"prompt_tokens": 7, "total_',
        b'"text": "he said \\"usage\\": {\\"prompt_tokens\\": 7}"}',
        b'"usage": null}',
        b'"usage": {"prompt_tokens": "7"}',
        b'"usage": {' * 200,
    ],
)
def test_what_is_no_usage_is_none(part: bytes) -> None:
    assert part_usage(part) is None


@pytest.mark.parametrize("behind", [b": bye\n\n", USAGE, HELLO])
@pytest.mark.parametrize("apart", [True, False])
def test_what_comes_behind_done_takes_nothing_back(behind: bytes, apart: bool) -> None:
    relay = EventRelay(hide_usage=False)
    pieces = [ROLE, HELLO, DONE, behind] if apart else [ROLE + HELLO + DONE + behind]
    assert b"".join(relay.feed(piece) for piece in pieces) == ROLE + HELLO + DONE + behind
    assert relay.done


@pytest.mark.parametrize("ending", [b"\n", b"\r\n", b""])
def test_a_last_event_without_its_blank_line_is_read_too(ending: bytes) -> None:
    relay = EventRelay(hide_usage=True)
    assert relay.feed(ROLE + HELLO + USAGE[:-2] + ending) + relay.finish() == ROLE + HELLO
    assert (relay.usage, relay.events) == (Usage(7, 3, 4), 1)

    relay = EventRelay(hide_usage=True)
    assert relay.feed(ROLE) + relay.feed(HELLO[:-2] + ending) + relay.finish() == ROLE + HELLO[:-2] + ending
    assert relay.content

    relay = EventRelay(hide_usage=True)
    failed = event(error={"message": "x", "code": 500})[:-2] + ending
    assert relay.feed(ROLE + failed) + relay.finish() == ROLE + failed
    assert relay.error and not relay.content


def test_the_rest_of_an_event_that_passed_unread_is_not_read() -> None:
    relay = EventRelay(hide_usage=True)
    long = USAGE[:-2] + b" " * MAX_EVENT
    assert relay.feed(long) + relay.feed(b"x") + relay.finish() == long + b"x"


def test_a_stream_without_an_end_of_its_own_is_cut_unless_its_events_end_it() -> None:
    for end, cut in ((b"", True), (STOP, False), (DONE, False), (DONE[:-2], False), (STOP[:-9], True)):
        relay = EventRelay(hide_usage=False, wary=True)
        for piece in (ROLE, HELLO, WORLD + end):
            relay.feed(piece)
        relay.finish()
        assert relay.cut is cut, end
    for kind in ("speech.audio", "transcript.text", "image_generation.partial_image"):
        relay = EventRelay(hide_usage=False, wary=True)
        relay.feed(event(type=f"{kind}.delta"))
        assert relay.cut
        relay.feed(event(type="image_generation.completed" if "image" in kind else f"{kind}.done"))
        assert not relay.cut, kind
    relay = EventRelay(hide_usage=False, wary=True)
    relay.feed(ROLE + HELLO[:-9])
    relay.finish()
    assert relay.cut and not relay.content, "a part of an event is nothing that a client has seen"


@pytest.mark.parametrize(
    ("error", "engines"),
    [
        ({"code": "server_error", "message": "x"}, True),
        (None, True),
        ({"code": "invalid_prompt", "message": "x"}, False),
    ],
)
def test_a_response_that_failed_before_its_text(error: object, engines: bool) -> None:
    """OpenAI's Responses: the engine's own fault is for another replica to mend, the request's is its answer."""
    relay = EventRelay(hide_usage=False)
    failed = event(type="response.failed", response={"error": error})
    assert relay.feed(event(type="response.created", response={"error": None})) == b""
    assert bool(relay.feed(failed)) is not engines
    assert (relay.error, relay.content, relay.done) == (engines, not engines, True)
