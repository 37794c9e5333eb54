"""JSON traces: kilocard's own form, Mooncake's (which it extends) and Bailian's.

One object a line, times in milliseconds from the trace's start, lengths in tokens:

    {"timestamp": 1500, "input_length": 1030, "output_length": 200, "hash_ids": [7, 8, 9]}

That is Mooncake's form: `hash_ids` has one id for each 512 tokens, the last one of a partial block perhaps. What
kilocard adds, each key optional: `block_size` (tokens of a block), `session_id`, `turn`, `delay` (milliseconds between
the end of the turn before and this one), `waits` (false: a session's requests come at their times), `conversation_id`
(whose opening a prompt has, where that is no session), `tenant`, `model`, `priority`, `max_tokens` (what the client
declares), `cancel_after_ms`. A file that uses none of them is a Mooncake trace.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

from kilocard.workload.blocks import unused_ids, whole_blocks
from kilocard.workload.request import WorkloadRequest
from kilocard.workload.trace import Reading, Trace, numbered_lines

MOONCAKE_BLOCK = 512
BAILIAN_BLOCK = 16

_MOONCAKE_KEYS = {"timestamp", "input_length", "output_length", "hash_ids"}
_OWN_KEYS = {
    "block_size", "session_id", "turn", "delay", "waits", "conversation_id", "tenant", "model", "priority",
    "max_tokens", "cancel_after_ms",
}  # fmt: skip


def read_jsonl(lines: Iterable[str]) -> Trace:
    """kilocard's or Mooncake's form. Raises TraceError that lists the problems with their line numbers."""
    reading = Reading("kilocard JSONL")
    extended = False
    for line, data in _objects(lines, reading):
        if unknown := data.keys() - _MOONCAKE_KEYS - _OWN_KEYS:
            reading.problem(line, f"unknown key {sorted(unknown)[0]!r}")
            continue
        extended = extended or bool(data.keys() & _OWN_KEYS)
        request = _request(line, data, reading)
        if request is not None:
            reading.add(line, request)
    if not extended:
        reading.format = "mooncake"
    return reading.trace()


def read_bailian(lines: Iterable[str]) -> Trace:
    """Alibaba's Qwen-Bailian traces. A session is a tree of chats there; here its turns follow one another."""
    reading = Reading("bailian")
    root_of: dict[str, str] = {}
    for line, data in _objects(lines, reading):
        at_s = reading.time(line, "timestamp", data.get("timestamp"), 1)
        lengths = _lengths(line, data, reading)
        chat, parent = data.get("chat_id"), data.get("parent_chat_id")
        if chat is None:
            reading.problem(line, "chat_id is missing")
        if at_s is None or lengths is None or chat is None:
            continue
        # -1 is no parent; the parent of a chat that began before the trace is not in it
        root = root_of.get(str(parent), str(chat))
        root_of[str(chat)] = root
        blocks = _blocks(line, data, lengths[0], BAILIAN_BLOCK, reading)
        if blocks is not None:
            reading.add(
                line,
                WorkloadRequest(at_s, *lengths, session=root, blocks=blocks, block_tokens=BAILIAN_BLOCK),
            )
    return reading.trace()


def write_jsonl(requests: Sequence[WorkloadRequest]) -> Iterator[str]:
    """Lines with their ends, in kilocard's form. Times are kept to the nanosecond.

    A partial last block gets an id that nobody else has, as in Mooncake's files, so that the number of ids is
    ceil(input_length / block_size).
    """
    fresh = unused_ids(requests)
    for request in requests:
        data: dict[str, Any] = {
            "timestamp": _milliseconds(request.at_s),
            "input_length": request.input_tokens,
            "output_length": request.output_tokens,
        }
        if request.block_tokens:
            missing = -(-request.input_tokens // request.block_tokens) - len(request.blocks)
            data["hash_ids"] = [*request.blocks, *(next(fresh) for _ in range(missing))]
            if request.block_tokens != MOONCAKE_BLOCK:
                data["block_size"] = request.block_tokens
        if request.session is not None:
            data |= {"session_id": request.session, "turn": request.turn}
        if request.think_s:
            data["delay"] = _milliseconds(request.think_s)
        if not request.waits:
            data["waits"] = False
        if request.conversation is not None:
            data["conversation_id"] = request.conversation
        for name in ("tenant", "model", "priority", "max_tokens"):
            if (value := getattr(request, name)) is not None:
                data[name] = value
        if request.cancel_after_s is not None:
            data["cancel_after_ms"] = _milliseconds(request.cancel_after_s)
        yield json.dumps(data, ensure_ascii=False) + "\n"


def _request(line: int, data: Mapping[str, Any], reading: Reading) -> WorkloadRequest | None:
    at_s = reading.time(line, "timestamp", data.get("timestamp"), 1e-3)
    lengths = _lengths(line, data, reading)
    think_s = reading.time(line, "delay", data.get("delay", 0), 1e-3)
    cancel = data.get("cancel_after_ms")
    cancel_s = None if cancel is None else reading.time(line, "cancel_after_ms", cancel, 1e-3)
    block_tokens = data.get("block_size", MOONCAKE_BLOCK)
    names = {name: data.get(name) for name in ("session_id", "conversation_id", "tenant", "model", "priority")}
    good = True
    for name, value in names.items():
        # Numbers are fine as ids of sessions: other tools write them.
        if value is not None and not isinstance(value, str) and not (name.endswith("_id") and type(value) is int):
            reading.problem(line, f"{name} is {value!r}, not a text")
            good = False
    waits, max_tokens = data.get("waits", True), data.get("max_tokens")
    if not isinstance(waits, bool):
        reading.problem(line, f"waits is {waits!r}, not true or false")
        good = False
    if max_tokens is not None and reading.tokens(line, "max_tokens", max_tokens) is None:
        good = False
    if type(block_tokens) is not int or block_tokens < 1:
        reading.problem(line, f"block_size is {block_tokens!r}, not a count of tokens")
        return None
    if not good or at_s is None or lengths is None or think_s is None or (cancel is not None and cancel_s is None):
        return None
    blocks = _blocks(line, data, lengths[0], block_tokens, reading)
    if blocks is None:
        return None
    session, conversation = names["session_id"], names["conversation_id"]
    return WorkloadRequest(
        at_s,
        *lengths,
        session=None if session is None else str(session),
        think_s=think_s,
        waits=waits,
        blocks=blocks,
        block_tokens=block_tokens if data.get("hash_ids") else 0,
        conversation=None if conversation is None else str(conversation),
        max_tokens=max_tokens,
        tenant=names["tenant"],
        model=names["model"],
        priority=names["priority"],
        cancel_after_s=cancel_s,
    )


def _objects(lines: Iterable[str], reading: Reading) -> Iterator[tuple[int, Mapping[str, Any]]]:
    for line, text in numbered_lines(lines):
        try:
            data = json.loads(text)
        except (ValueError, RecursionError):
            reading.problem(line, "not JSON")
            continue
        if isinstance(data, dict):
            yield line, data
        else:
            reading.problem(line, "not a JSON object")


def _lengths(line: int, data: Mapping[str, Any], reading: Reading) -> tuple[int, int] | None:
    asked = reading.tokens(line, "input_length", data.get("input_length"))
    answered = reading.tokens(line, "output_length", data.get("output_length"))
    return None if asked is None or answered is None else (asked, answered)


def _blocks(
    line: int, data: Mapping[str, Any], input_tokens: int, block_tokens: int, reading: Reading
) -> tuple[int, ...] | None:
    ids = data.get("hash_ids") or []
    if not isinstance(ids, list) or not all(type(each) is int and each >= 0 for each in ids):
        reading.problem(line, "hash_ids is not a list of whole numbers, 0 or more")
        return None
    blocks = whole_blocks(ids, input_tokens, block_tokens) if ids else ()
    if blocks is None:
        reading.problem(
            line,
            f"{len(ids)} hash_ids for {input_tokens} input tokens: with blocks of {block_tokens} tokens it would be "
            f"{-(-input_tokens // block_tokens)} (`block_size` says another size)",
        )
    return blocks


def _milliseconds(seconds: float) -> float | int:
    found = round(seconds * 1000, 6)
    return int(found) if found == int(found) else found


def first_object(lines: Iterable[str]) -> tuple[Mapping[str, Any] | None, Iterable[str]]:
    """The first line's object, where it is one; and all lines again."""
    held: list[str] = []
    source = iter(lines)
    for raw in source:
        held.append(raw)
        if text := raw.strip().removeprefix("\ufeff"):
            try:
                data = json.loads(text)
            except (ValueError, RecursionError):
                data = None
            return (data if isinstance(data, dict) else None), chain(held, source)
    return None, held
