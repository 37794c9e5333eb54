"""The request peek, edits of the body, and error bodies."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kilocard.core.errors import CapacityError, ClientError, KilocardError, NotFound
from kilocard.wire.edit import edit, with_usage
from kilocard.wire.events import Usage, body_usage
from kilocard.wire.failure import error_body, error_event
from kilocard.wire.peek import peek


def test_the_usual_request() -> None:
    seen = peek(b'{"model":"m","stream":true,"max_tokens":12,"messages":[{"role":"user","content":"\\u8bfb"}]}')
    assert (seen.model, seen.stream, seen.output_tokens, seen.wants_usage) == ("m", True, 12, False)


@pytest.mark.parametrize(
    ("body", "stream"),
    [(b"{}", False), (b'{"stream":null}', False), (b'{"stream":1}', True), (b'{"stream":"true"}', True)],
)
def test_stream_is_read_as_engines_read_it(body: bytes, stream: bool) -> None:
    assert peek(body).stream is stream


@pytest.mark.parametrize(
    ("flag", "wants"), [("true", True), ("1", True), ('"true"', True), ("false", False), ("0", False), ("null", False)]
)
def test_usage_is_wanted_by_whatever_engines_read_as_true(flag: str, wants: bool) -> None:
    assert peek(b'{"stream_options":{"include_usage":%b}}' % flag.encode()).wants_usage is wants


def test_the_newer_limit_wins_and_nonsense_is_left_to_the_engine() -> None:
    assert peek(b'{"max_tokens":5,"max_completion_tokens":7}').output_tokens == 7
    assert peek(b'{"max_tokens":-1}').output_tokens == peek(b"{}").output_tokens
    assert peek(b'{"max_tokens":true,"stream_options":3}').has_stream_options


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"", "empty_body"),
        (b"  ", "empty_body"),
        (b"{", "invalid_json"),
        (b"[1]", "invalid_json"),
        (b'"x"', "invalid_json"),
        (b'{"model": "a"} x', "invalid_json"),
        (b'{"model":7}', "invalid_model"),
        (b'{"model":""}', "invalid_model"),
        (b'{"model":"\xff"}', "invalid_json"),
        (b'{"a":' * 100_000, "invalid_json"),
    ],
)
def test_bad_bodies_are_the_clients_fault_and_say_why(body: bytes, code: str) -> None:
    with pytest.raises(ClientError) as caught:
        peek(body)
    assert (caught.value.code, caught.value.http_status) == (code, 400)
    shape = json.loads(error_body(caught.value))["error"]
    assert set(shape) == {"message", "type", "param", "code"}


@pytest.mark.parametrize(
    ("coding", "said"),
    [("utf-8-sig", "begins with a byte-order mark"), ("utf-16", "is UTF-16"), ("utf-16-be", "is UTF-16")],
)
def test_a_file_from_an_editor_that_marks_its_texts_is_called_that(coding: str, said: str) -> None:
    mark = "\ufeff" if coding == "utf-16-be" else ""
    with pytest.raises(ClientError, match=said):
        peek((mark + '{"model": "m"}').encode(coding))


@given(st.binary(max_size=200))
def test_no_body_crashes_the_peek(body: bytes) -> None:
    try:
        peek(body)
    except ClientError as error:
        assert error.message


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.text(), json_values, max_size=5), st.booleans())
def test_asking_for_usage_changes_nothing_else(fields: dict[str, object], spaced: bool) -> None:
    fields.pop("stream_options", None)
    body = json.dumps(fields, indent=1 if spaced else None).encode()
    assert json.loads(with_usage(body, False)) == {**fields, "stream_options": {"include_usage": True}}


def test_other_stream_options_are_kept() -> None:
    body = b'{"stream_options":{"continuous_usage_stats":true,"include_usage":false},"x":1.0}'
    assert json.loads(with_usage(body, True))["stream_options"] == {
        "continuous_usage_stats": True,
        "include_usage": True,
    }
    assert b'"x":1.0' in with_usage(body, True)
    assert json.loads(with_usage(b'{"stream_options":null}', True)) == {"stream_options": {"include_usage": True}}
    assert with_usage(b'{"stream_options":7}', True) == b'{"stream_options":7}'


def test_an_edit_keeps_the_bytes_of_other_values() -> None:
    body = b'{"a":1.10,"model":"public","seed":12345678901234567890,"t":"\\u00e9"}'
    assert edit(body, {"model": "/models/x"}) == (
        b'{"a":1.10,"model":"/models/x","seed":12345678901234567890,"t":"\\u00e9"}'
    )


def test_error_bodies_in_both_shapes() -> None:
    error = NotFound("no such model", code="model_not_found", param="model")
    assert json.loads(error_body(error)) == {
        "error": {
            "message": "no such model",
            "type": "invalid_request_error",
            "param": "model",
            "code": "model_not_found",
        }
    }
    assert json.loads(error_body(CapacityError("full"), anthropic=True))["error"]["type"] == "overloaded_error"
    assert error_event(error).startswith(b"data: {") and error_event(error).endswith(b"}\n\n")


def test_each_error_has_one_status_and_one_exit_code() -> None:
    def tree(kind: type[KilocardError]) -> list[type[KilocardError]]:
        return [kind, *(below for child in kind.__subclasses__() for below in tree(child))]

    for kind in tree(KilocardError):
        assert 400 <= kind.http_status < 600 and kind.exit_code in (1, 2), kind
        assert kind.default_code and kind.kind, kind


def test_usage_of_a_whole_body() -> None:
    usage = body_usage(b'{"choices":[1,2],"usage":{"prompt_tokens":3,"completion_tokens":4}}')
    assert usage is not None and (usage.prompt, usage.output) == (3, 4)
    assert body_usage(b"[]") is None and body_usage(b'{"usage":null}') is None


def test_an_engine_that_only_says_the_total_has_counted_the_prompt() -> None:
    """Rerank of vLLM before it said `prompt_tokens` beside it, and of Jina's and Cohere's kind."""
    assert body_usage(b'{"results":[],"usage":{"total_tokens":56}}') == Usage(56, 0)
    assert body_usage(b'{"usage":{"total_tokens":-1}}') is None
    assert body_usage(b'{"usage":{"type":"duration","seconds":12}}') is None
    assert body_usage(b'{"usage":{"completion_tokens":4,"total_tokens":9}}') == Usage(None, 4)


@pytest.mark.parametrize("body", [b'{"model":"m","k\xff":1}', b'{"\xc3(":{"a":1},"model":"m","stream_options":{}}'])
def test_keys_that_are_no_utf8_do_not_stop_an_edit(body: bytes) -> None:
    """peek looks into no key but its own; the edit comes later, where nobody expects an error."""
    peek(body)
    assert peek(edit(body, {"model": "x"})).model == "x"
    assert peek(with_usage(body, b"stream_options" in body)).wants_usage
