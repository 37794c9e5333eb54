"""Traces: each format's own traps, all problems at once, round trips."""

from __future__ import annotations

import json
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kilocard.core.errors import TraceError
from kilocard.workload.read import read_trace
from kilocard.workload.request import WorkloadRequest
from kilocard.workload.trace import with_turns
from kilocard.workload.trace_jsonl import write_jsonl

AZURE = """TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 23:59:59.9799600,4808,10
2023-11-17 00:00:00.0319601,3180,8
"""

MOONCAKE = """{"timestamp": 0, "input_length": 1024, "output_length": 5, "hash_ids": [0, 1]}
{"timestamp": 3003, "input_length": 1100, "output_length": 7, "hash_ids": [0, 1, 2]}
"""

BAILIAN = """{"chat_id": 10, "parent_chat_id": -1, "timestamp": 0.5, "input_length": 33, "output_length": 4, "type": "text", "turn": 1, "hash_ids": [1, 2, 3]}
{"chat_id": 11, "parent_chat_id": 99, "timestamp": 1.0, "input_length": 16, "output_length": 4, "type": "text", "turn": 4, "hash_ids": [9]}
{"chat_id": 12, "parent_chat_id": 10, "timestamp": 7.25, "input_length": 48, "output_length": 4, "type": "text", "turn": 2, "hash_ids": [1, 2, 5]}
{"chat_id": 13, "parent_chat_id": 12, "timestamp": 9, "input_length": 64, "output_length": 4, "type": "text", "turn": 3, "hash_ids": [1, 2, 5, 6]}
"""  # noqa: E501  # lines of the format

BURSTGPT = """Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type
5,ChatGPT,472,18,490,Conversation log
45,GPT-4,1087,0,1087,API log
118.5,GPT-4,417,276,693,Conversation log
"""


def read(text: str) -> tuple[WorkloadRequest, ...]:
    return read_trace(text.splitlines(keepends=True)).requests


def test_azure_counts_from_the_first_row_to_the_tenth_of_a_microsecond() -> None:
    first, second = read(AZURE)
    assert (first.at_s, first.input_tokens, first.output_tokens) == (0, 4808, 10)
    assert second.at_s == 0.0520001


def test_azure_2024_has_an_offset() -> None:
    rows = AZURE.replace("0:00:00.0319601", "0:00:00.0319601+00:00")
    assert read(rows) == read(AZURE)
    assert read(AZURE.replace("2023-11-17 00:00:00.0319601", "2023-11-17T02:00:00.0319601+02:00")) == read(AZURE)


def test_mooncake_shares_no_partial_block() -> None:
    first, second = read(MOONCAKE)
    assert first.blocks == second.blocks == (0, 1)
    assert (second.at_s, second.block_tokens) == (3.003, 512)
    assert read_trace(MOONCAKE.splitlines()).format == "mooncake"


def test_bailian_trees_are_sessions() -> None:
    trace = read_trace(BAILIAN.splitlines())
    assert trace.format == "bailian"
    assert [(each.session, each.turn) for each in trace.requests] == [("10", 0), ("11", 0), ("10", 1), ("10", 2)]
    assert trace.requests[0].blocks == (1, 2)
    assert trace.requests[2].blocks == (1, 2, 5)
    assert trace.requests[2].at_s == 7.25


def test_burstgpt_failures_are_counted() -> None:
    trace = read_trace(BURSTGPT.splitlines())
    assert [(each.at_s, each.model, each.input_tokens, each.output_tokens) for each in trace.requests] == [
        (5, "ChatGPT", 472, 18),
        (118.5, "GPT-4", 417, 276),
    ]
    assert trace.unanswered == 1


def test_burstgpt_sessions_where_a_release_has_them() -> None:
    text = (
        "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens\n1,a,2,m,3,4\n2,,2,m,3,4\n3,a,2,m,3,4\n"
    )
    assert [(each.session, each.turn) for each in read(text)] == [("a", 0), (None, 0), ("a", 1)]


def test_rows_out_of_order_are_put_in_order() -> None:
    late, early = json.loads(MOONCAKE.splitlines()[1]), json.loads(MOONCAKE.splitlines()[0])
    assert read(f"{json.dumps(late)}\n{json.dumps(early)}") == read(MOONCAKE)


def test_own_keys() -> None:
    (one,) = read(
        '{"timestamp": 1.5, "input_length": 33, "output_length": 2, "hash_ids": [4, 5], "block_size": 16, '
        '"session_id": 7, "delay": 250, "tenant": "a", "model": "m", "priority": "low", "cancel_after_ms": 40}'
    )
    assert one == WorkloadRequest(
        0.0015, 33, 2, session="7", think_s=0.25, blocks=(4, 5), block_tokens=16, tenant="a", model="m",
        priority="low", cancel_after_s=0.04,
    )  # fmt: skip


def test_empty_lines_and_a_byte_order_mark_do_no_harm() -> None:
    for text in (AZURE, MOONCAKE, BAILIAN, BURSTGPT):
        assert read("\ufeff" + text.replace("\n", "\r\n\r\n")) == read(text)


@pytest.mark.parametrize(
    ("text", "problems"),
    [
        (
            AZURE + "yesterday,1,2\n2023-02-29 00:00:00,x,2\n2023-11-16 00:00:00,1\n2023-11-16 24:00:00,-1,2.5\n",
            [
                "line 4: TIMESTAMP is 'yesterday', not a date and time",
                "line 5: TIMESTAMP is '2023-02-29 00:00:00', not a date and time",
                "line 5: ContextTokens is 'x', not a count of tokens",
                "line 6: 2 columns, the header has 3",
                "line 7: ContextTokens is '-1'",
                "line 7: GeneratedTokens is '2.5'",
            ],
        ),
        (
            MOONCAKE + '{"timestamp": 1}\nnope\n[1]\n'
            '{"timestamp": 1, "input_length": 1024, "output_length": 1, "hash_ids": [1]}\n'
            '{"timestamp": 1, "input_length": 0, "output_length": 1}\n'
            '{"timestamp": -1, "input_length": 1, "output_length": 1, "hash_ids": ["a"]}\n'
            '{"timestamp": 1, "input_length": 1, "output_length": 1, "tennant": "a"}\n'
            '{"timestamp": 1, "input_length": 1, "output_length": 1, "tenant": 1, "block_size": 0}\n'
            '{"timestamp": NaN, "input_length": true, "output_length": 1e999}\n',
            [
                "line 3: input_length is None, not a count of tokens",
                "line 4: not JSON",
                "line 5: not a JSON object",
                "line 6: 1 hash_ids for 1024 input tokens: with blocks of 512 tokens it would be 2",
                "line 7: no input tokens",
                "line 8: timestamp is -1, not a time",
                "line 9: unknown key 'tennant'",
                "line 10: tenant is 1, not a text",
                "line 10: block_size is 0",
                "line 11: timestamp is nan",
                "line 11: input_length is True",
                "line 11: output_length is inf",
            ],
        ),
        (BAILIAN + '{"chat_id": 14, "timestamp": 1}\n', ["line 5: input_length is None"]),
        (BURSTGPT + "x,m,1,1,1,API log\n", ["line 5: Timestamp is 'x', not a time"]),
    ],
)
def test_every_problem_is_named_with_its_line(text: str, problems: list[str]) -> None:
    with pytest.raises(TraceError) as caught:
        read(text)
    for problem in problems:
        assert problem in caught.value.message


def test_many_problems_are_counted() -> None:
    with pytest.raises(TraceError, match=r"… and 50 more"):
        read(MOONCAKE + "nope\n" * 100)


@pytest.mark.parametrize("text", ["", "a,b,c\n1,2,3\n", "hello"])
def test_unknown_formats_say_what_is_known(text: str) -> None:
    with pytest.raises(TraceError, match=r"TIMESTAMP, ContextTokens, GeneratedTokens"):
        read(text)


def test_nothing_but_failures_is_no_trace() -> None:
    with pytest.raises(TraceError, match="no request that was answered"):
        read("\n".join(BURSTGPT.splitlines()[:1] + BURSTGPT.splitlines()[2:3]))


names = st.none() | st.text(max_size=5)
nanoseconds = st.integers(0, 10**14).map(lambda count: count / 10**9)


@st.composite
def requests(draw: st.DrawFn) -> WorkloadRequest:
    block_tokens = draw(st.sampled_from([0, 16, 512]))
    tokens = draw(st.integers(1, 3000))
    whole = tokens // block_tokens if block_tokens else 0
    # a request without a whole block shares nothing, and says so by having no block size
    blocks = tuple(draw(st.lists(st.integers(0, 99), min_size=whole, max_size=whole)))
    return WorkloadRequest(
        at_s=draw(nanoseconds),
        input_tokens=tokens,
        output_tokens=draw(st.integers(1, 10**6)),
        session=draw(st.none() | st.sampled_from("abc")),
        think_s=draw(nanoseconds),
        blocks=blocks,
        block_tokens=block_tokens if blocks else 0,
        tenant=draw(names),
        model=draw(names),
        priority=draw(names),
        cancel_after_s=draw(st.none() | nanoseconds),
    )


@given(st.lists(requests(), min_size=1, max_size=8))
def test_what_is_written_is_read_again(asked: list[WorkloadRequest]) -> None:
    ordered = with_turns(sorted(asked, key=lambda each: each.at_s))
    lines = list(write_jsonl(ordered))
    assert read_trace(lines).requests == ordered
    for line in lines:
        data = json.loads(line)
        if ids := data.get("hash_ids"):
            assert len(ids) == -(-data["input_length"] // data.get("block_size", 512)), "as Mooncake's readers want it"


@given(st.lists(requests(), min_size=1, max_size=8))
def test_ids_of_partial_blocks_are_nobody_elses(asked: list[WorkloadRequest]) -> None:
    taken = {each for request in asked for each in request.blocks}
    written = [json.loads(line).get("hash_ids", []) for line in write_jsonl(asked)]
    extra = [ids[len(request.blocks) :] for request, ids in zip(asked, written, strict=True)]
    flat = [each for ids in extra for each in ids]
    assert len(flat) == len(set(flat))
    assert not taken & set(flat)


@given(st.text(max_size=200))
def test_any_text_is_a_trace_or_a_trace_error(text: str) -> None:
    for start in ("", AZURE, MOONCAKE, BURSTGPT, BAILIAN):
        with suppress(TraceError):
            assert read_trace((start + text).splitlines()).requests


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 2000) | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=4),
    max_leaves=4,
)
keys = st.sampled_from(
    ["timestamp", "input_length", "output_length", "hash_ids", "block_size", "session_id", "delay", "chat_id"]
)


@given(st.lists(st.dictionaries(keys, json_values), min_size=1, max_size=4))
def test_any_object_is_a_trace_or_a_trace_error(objects: list[dict[str, object]]) -> None:
    with suppress(TraceError):
        assert read_trace([json.dumps(each) for each in objects]).requests
