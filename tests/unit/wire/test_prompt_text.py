"""How a request's prompt begins, told from its body without its text."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kilocard.core.prefix import Prefix
from kilocard.wire.nonces import without_nonces
from kilocard.wire.prompt_text import prefix_of, prompt_text

LONG = "You help people who run servers. " * 200
SYSTEM = {"role": "system", "content": LONG}


def prefix(session: bytes = b"", **body: Any) -> Prefix:
    raw = json.dumps({"model": "m"} | body).encode()
    found = prefix_of("m", raw, len(raw) // 4, session)
    assert found is not None
    return found


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def chat(*messages: dict[str, Any], **more: Any) -> Prefix:
    return prefix(messages=list(messages), **more)


def test_a_later_turn_begins_with_the_earlier_one_and_is_at_home_where_that_is() -> None:
    first = chat(SYSTEM, user("What is a replica? " * 200))
    answer = {"role": "assistant", "content": "One engine with its own endpoint. " * 100}
    later = chat(SYSTEM, user("What is a replica? " * 200), answer, user("And a pool?"))
    assert later.keys[: len(first.keys)] == first.keys
    assert len(later.keys) > len(first.keys) > 8
    assert later.home == first.home


def test_another_conversation_shares_the_system_prompt_and_has_another_home() -> None:
    one, other = chat(SYSTEM, user("one " * 2000)), chat(SYSTEM, user("other " * 2000))
    assert one.home != other.home
    assert one.keys[:5] == other.keys[:5]
    assert one.keys[8] != other.keys[8]


@pytest.mark.parametrize(
    "more",
    [
        {"temperature": 0.2},
        {"stream": True},
        {"max_tokens": 5},
        {"user": "somebody"},
        {"metadata": {"trace": "x" * 999}},
    ],
)
def test_what_is_no_prompt_changes_nothing(more: dict[str, Any]) -> None:
    assert chat(SYSTEM, user("hello"), **more)[1:] == chat(SYSTEM, user("hello"))[1:]


@pytest.mark.parametrize("more", [{"tools": [{"type": "function", "function": {"name": "f"}}]}, {"cache_salt": "t1"}])
def test_what_comes_before_or_parts_caches_changes_all(more: dict[str, Any]) -> None:
    assert not set(chat(SYSTEM, user("hello"), **more).keys) & set(chat(SYSTEM, user("hello")).keys)


def test_marks_for_a_prompt_cache_move_from_turn_to_turn_and_are_no_part_of_it() -> None:
    def part(text: str, *, marked: bool) -> dict[str, Any]:
        return {"type": "text", "text": text} | ({"cache_control": {"type": "ephemeral"}} if marked else {})

    def result(*, marked: bool) -> dict[str, Any]:
        told = {"type": "tool_result", "tool_use_id": "t", "content": "ok " * 900}
        return told | ({"cache_control": {"type": "ephemeral"}} if marked else {})

    first = prefix(system=[part(LONG, marked=True)], messages=[{"role": "user", "content": [part(LONG, marked=True)]}])
    later = prefix(
        system=[part(LONG, marked=True)],
        messages=[{"role": "user", "content": [part(LONG, marked=False)]}, user("more")],
    )
    assert later.keys[: len(first.keys)] == first.keys and later.home == first.home
    marked, plain = (chat({"role": "user", "content": [result(marked=m)]}) for m in (True, False))
    assert marked.keys == plain.keys


def test_prompts_without_messages() -> None:
    one, longer = prefix(prompt=LONG * 4), prefix(prompt=LONG * 4 + "and more")
    assert longer.keys[: len(one.keys)] == one.keys and one.home == longer.home
    tokens = prefix(prompt=[[1, 2, 3] * 2000])
    assert tokens.keys and tokens.home
    asked = prefix(instructions=LONG, input=[user("x " * 900)])
    assert asked.keys and asked.home
    assert prefix(input=LONG).keys


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[]", b'{"messages": "hello"', b'{"messages": [1]}', b'{"messages": []}', b'{"prompt": null}', b"{}",
     b'{"messages":' + b"[" * 5000],
)  # fmt: skip
def test_what_can_not_be_read_is_no_error_here(body: bytes) -> None:
    assert prefix_of("m", body, 10) is None


def test_a_session_is_named_even_where_the_prompt_is_not_read() -> None:
    named = prefix_of("m", b"{}", 10, b"tenant\ns1")
    assert named is not None and named.session and not named.keys
    assert named.session != prefix_of("other", b"{}", 10, b"tenant\ns1").session  # type: ignore[union-attr]


NONCES = [
    ("6f9619ff-8b86-d011-b42d-00c04fc964ff", "00000000-8b86-4011-b42d-aaaaaaaaaaa1"),
    ("2026-11-30T01:20:33Z", "2026-12-01T23:59:59Z"),
    ("2026-11-30 01:20:33.123456+00:00", "2026-11-30 01:20:34.123457+00:00"),
    ("2026-11-30 01:20", "2026-11-30 01:21"),
    ("14:05:59", "9:00:00"),
    ("1764465633", "1764465634"),
    ("1764465633123", "1764465634124"),
    ("9f86d081884c7d659a2feaa0c55ad015", "A3f5d081884c7d659a2feaa0c55ad015"),
]


@pytest.mark.parametrize("role", ["system", "developer"])
@pytest.mark.parametrize(("one", "other"), NONCES)
def test_30_a_nonce_in_a_system_prompt_is_left_out(role: str, one: str, other: str) -> None:
    first, second = (chat({"role": role, "content": f"Be brief. ({n}) {LONG}"}, user("hi")) for n in (one, other))
    assert first[1:] == second[1:] and first.keys
    assert without_nonces(f"at {one}, say".encode()) == b"at \xff, say"


def test_30_a_coding_agents_header_changes_with_each_request_and_moves_nothing() -> None:
    def asked(checksum: str) -> Prefix:
        line = f"x-anthropic-billing-header: cc_version=2.1.37.{checksum}; cc_entrypoint=cli; cch={checksum};"
        return prefix(
            system=[{"type": "text", "text": line}, {"type": "text", "text": LONG}], messages=[user("fix it")]
        )

    assert asked("3a3").keys == asked("f0c").keys
    assert asked("3a3").home == asked("f0c").home


def test_in_what_people_write_a_number_is_a_number() -> None:
    one, other = (chat(SYSTEM, user(f"what is 176446563{n}? " * 400)) for n in (3, 4))
    assert one.home != other.home


@pytest.mark.parametrize(
    "text", ["in 2026", "port 8000", "2026-11-30", "a beaded facade", "v1.2.3", "16384 tokens", "5:30"]
)
def test_ordinary_numbers_stay(text: str) -> None:
    assert without_nonces(text.encode()) == text.encode()


@given(st.binary(max_size=300))
def test_any_bytes_can_be_looked_through(data: bytes) -> None:
    assert len(without_nonces(data)) <= len(data) + 1
    found = prompt_text(data)
    assert found is None or 0 < found.opening <= len(found.text)
