"""JSON bodies: what we read in them is what others read, and an edit changes only what it shall."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from fuzz.words import spelled, spelling
from kilocard.core.errors import ClientError
from kilocard.wire.edit import edit, with_usage
from kilocard.wire.fingerprint import fingerprint
from kilocard.wire.peek import peek, prompts
from kilocard.wire.tokens import text_bytes

_WORDS = (
    b'"model"',
    b'"m"',
    b'"stream"',
    b'"stream_options"',
    b'"include_usage"',
    b'"max_tokens"',
    b'"n"',
    b'"prompt"',
    b'"x"',
    b'"mod\\u0065l"',
    b'"Model"',
    b'"\\ud800"',
    b'"\xff"',
    b'"messages"',
    b'"max_completion_tokens"',
    b"1.50",
    b"123456789012345678901234567890",
    b"\n",
    b"\xef\xbb\xbf",
    b'"image":"data:;base64,AAAA"',
)
SEEDS = [
    spelling(b'{"model":"m","stream":true,"stream_options":{"include_usage":false,"x":1.50}}', _WORDS),
    spelling(b'{"stream_options":null,"prompt":["m",[0,1]],"model":"x","n":-2,"mod\\u0065l":"m"}', _WORDS),
    spelling(b'{"messages":[{"x":"m"},{}],"max_tokens":1,"model":"m","x":{"\xff":null}}', _WORDS),
    b'{"model":"m","messages":[{"role":"user","content":"hi"}],"stream":true,"max_tokens":5}',
    b'{"model":"m","prompt":["a","b"],"n":2,"best_of":3,"stream_options":{"include_usage":false}}',
    b'{"model":"a","model":"b","mod\\u0065l":"c","stream":"true","max_completion_tokens":1e3}',
    b' {"stream_options":null,"model":"m","x":[1.50,-0.0,12345678901234567890,"\\ud83d\\ude42"]} ',
    b"{}",
]
_read = msgspec.json.Decoder().decode


def check(data: bytes) -> None:
    data = spelled(data, _WORDS)
    text_bytes(data)
    try:
        seen = peek(data)
    except ClientError:
        return
    fingerprint(seen.model or "", data)
    assert prompts(data) >= 0
    theirs = _others(data)
    if theirs is not None:
        assert theirs.get("model") == seen.model, "another reader sees another model"
        if type(theirs.get("stream")) is bool:
            assert theirs["stream"] == seen.stream
    renamed, asked = edit(data, {"model": "x"}), with_usage(data, seen.has_stream_options)
    try:
        wanted = _read(data)
    except msgspec.DecodeError:  # keys or values that are no UTF-8
        return
    assert _read(renamed) == {**wanted, "model": "x"}
    if asked is not data:
        options = wanted.get("stream_options")
        if not seen.has_stream_options:
            assert _others(asked) is None or _others(asked)["stream_options"] == {"include_usage": True}
            asked_for = _read(asked)
            del asked_for["stream_options"]
            assert asked_for == wanted
        else:
            assert _read(asked) == {**wanted, "stream_options": {**(options or {}), "include_usage": True}}


def _others(data: bytes) -> Any:
    """What Python's own reader makes of it, which most engines use; None where it reads less than ours."""
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None
