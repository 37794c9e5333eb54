"""What each replica gets of a client's request: its own name for the model, usage asked for, all else as it came."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kilocard.core.errors import ClientError
from kilocard.core.replica import Endpoint
from kilocard.gateway.arrival import Arrival
from kilocard.gateway.heads import read_request_head
from kilocard.gateway.outbox import Outbox
from kilocard.gateway.replica_connections import ReplicaConnections
from kilocard.gateway.request import Inbound
from kilocard.gateway.routes import INFERENCE
from kilocard.gateway.target import Target
from kilocard.tenancy.access import ANYBODY, Tenant


def target(
    model_names: dict[str, str] | None = None, stream_usage: bool = True, keys_in_any_case: bool = False
) -> Target:
    url = "http://10.0.0.1:8000"
    connections = ReplicaConnections(url, float, Outbox())
    return Target(Endpoint("p/0", "p", url), connections, model_names or {}, stream_usage, "", "", (), keys_in_any_case)


CHAT = b"/v1/chat/completions"
FORM = b"/v1/audio/transcriptions"


def inbound(body: bytes, path: bytes = CHAT, query: bytes = b"", *lines: bytes, keys_are_ours: bool = False) -> Inbound:
    head = read_request_head(b"\r\n".join([b"POST / HTTP/1.1", b"host: x", *lines]))
    return Inbound(
        INFERENCE[path],
        Arrival(b"POST", path, query, head, body, True, "1.1"),
        Tenant("t", None) if keys_are_ours else ANYBODY,
    )


def sent(one: Inbound, to: Target | None = None) -> tuple[list[bytes], bytes]:
    head, body = one.for_replica(to or target(), b"kc-1")
    assert head.endswith(b"\r\n\r\n")
    lines = head[:-4].split(b"\r\n")
    assert lines.count(b"content-length: %d" % len(body)) == 1
    assert sum(line.lower().startswith(b"content-length:") for line in lines) == 1
    return lines, body


def form(*fields: tuple[bytes, bytes], boundary: bytes = b"XX") -> bytes:
    parts = [
        b'--%b\r\ncontent-disposition: form-data; name="%b"\r\n\r\n%b\r\n' % (boundary, name, value)
        for name, value in fields
    ]
    return b"".join(parts) + b"--%b--\r\n" % boundary


FORM_TYPE = b"content-type: multipart/form-data; boundary=XX"


def test_a_usual_request_passes_as_it_came() -> None:
    body = b'{ "model":"m", "temperature": 0.10, "messages":[] }'
    lines, out = sent(inbound(body, CHAT, b"?a=1", b"x-b: 2", b"X-Request-Id: mine", b"content-length: 51"))
    assert out is body
    assert lines == [
        b"POST /v1/chat/completions?a=1 HTTP/1.1",
        b"host: 10.0.0.1:8000",
        b"x-b: 2",
        b"x-request-id: kc-1",
        b"content-length: 51",
    ]


@pytest.mark.parametrize("ours", [False, True])
def test_keys_end_where_they_are_asked_for(ours: bool) -> None:
    keys = (b"Authorization: Bearer k", b"x-api-key: k")
    lines, _ = sent(inbound(b"{}", CHAT, b"", b"a: b", *keys, keys_are_ours=ours))
    assert b"a: b" in lines
    assert all((key in lines) is not ours for key in keys)


def test_each_replica_gets_its_own_name_for_the_model() -> None:
    body = b'{"model":"public","seed":1e400,"logit_bias":{"1":1.0},"messages":[{"content":"\\u00e9\xc3\xa9"}]}'
    one = inbound(body)
    _, renamed = sent(one, target(model_names={"public": "org/Private-7B"}))
    assert renamed == body.replace(b"public", b"org/Private-7B")
    _, again = sent(one, target(model_names={"other": "x"}))  # a retry on a replica that knows the public name
    assert again is body


def test_a_request_without_a_model_gets_the_only_one() -> None:
    one = inbound(b'{"messages":[]}')
    assert one.named is None
    one.model = "only"
    _, body = sent(one)
    assert json.loads(body) == {"messages": [], "model": "only"}
    _, body = sent(one, target(model_names={"only": "engine's"}))
    assert json.loads(body) == {"messages": [], "model": "engine's"}


@pytest.mark.parametrize(
    ("options", "asked", "hidden"),
    [
        (None, {"include_usage": True}, True),
        ({}, {"include_usage": True}, True),
        ({"include_usage": False, "x": 1}, {"include_usage": True, "x": 1}, True),
        ({"include_usage": True, "x": 1}, {"include_usage": True, "x": 1}, False),
    ],
)
def test_usage_of_streams_is_asked_for_and_hidden(options: object, asked: object, hidden: bool) -> None:
    body = json.dumps(
        {"model": "m", "stream": True} | ({} if options is None else {"stream_options": options})
    ).encode()
    one = inbound(body)
    _, out = sent(one)
    assert json.loads(out) == {"model": "m", "stream": True, "stream_options": asked}
    assert one.hide_usage is hidden
    _, plain = sent(one, target(stream_usage=False))  # an engine that would refuse it
    assert plain is body and not one.hide_usage


@pytest.mark.parametrize("options", [b"7", b"[]", b'"x"'])
def test_options_of_a_wrong_type_are_the_engines_to_refuse(options: bytes) -> None:
    body = b'{"model":"m","stream":true,"stream_options":%b}' % options
    one = inbound(body)
    _, out = sent(one)
    assert out is body
    assert not one.hide_usage


def test_options_that_are_null_are_none() -> None:
    one = inbound(b'{"model":"m","stream":true,"stream_options":null}')
    _, out = sent(one)
    assert out.count(b'"stream_options"') == 1
    assert json.loads(out)["stream_options"] == {"include_usage": True}


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (CHAT, b'{"model":"m","stream":false}'),
        (CHAT, b'{"model":"m","stream":null}'),
        (b"/v1/responses", b'{"model":"m","stream":true}'),
        (b"/v1/messages", b'{"model":"m","stream":true}'),
    ],
)
def test_usage_is_not_asked_for_where_there_is_no_such_option(path: bytes, body: bytes) -> None:
    one = inbound(body, path)
    assert sent(one)[1] is body
    assert not one.hide_usage


@given(
    st.dictionaries(
        st.text(max_size=6).filter(lambda key: key not in {"model", "stream", "stream_options"}),
        st.none()
        | st.booleans()
        | st.integers(-(2**70), 2**70)
        | st.text(max_size=6)
        | st.lists(st.integers(), max_size=3),
        max_size=5,
    ),
    st.booleans(),
    st.sampled_from(["m", "public"]),
    st.sampled_from([None, ", ", " : "]),
)
def test_nothing_but_model_and_usage_changes(
    more: dict[str, object], stream: bool, model: str, spaces: str | None
) -> None:
    fields = {**more, "model": model, "stream": stream}
    separators = {None: (",", ":"), ", ": (", ", ": "), " : ": (" ,", " : ")}[spaces]
    _, out = sent(
        inbound(b" \n" + json.dumps(fields, separators=separators).encode()), target(model_names={"public": "own"})
    )
    wanted = dict(fields)
    if model == "public":
        wanted["model"] = "own"
    if stream:
        wanted["stream_options"] = {"include_usage": True}
    assert json.loads(out) == wanted


def test_a_form_s_model_is_renamed_in_its_place() -> None:
    sound = b"RIFF\x00\r\n--X\r\n\xff" * 50
    body = form((b"file", sound), (b"model", b"public"), (b"language", b"zh"))
    one = inbound(body, FORM, b"", FORM_TYPE)
    assert (one.model, one.stream) == ("public", False)
    lines, out = sent(one, target(model_names={"public": "whisper-large-v3"}))
    assert out == form((b"file", sound), (b"model", b"whisper-large-v3"), (b"language", b"zh"))
    assert FORM_TYPE in lines
    assert sent(one)[1] is body


def test_a_form_may_ask_for_a_stream() -> None:
    one = inbound(form((b"model", b"m"), (b"stream", b"True")), FORM, b"", FORM_TYPE)
    assert one.stream
    assert sent(one)[1] is one.body


def test_a_form_without_a_model_passes_as_it_came() -> None:
    one = inbound(form((b"file", b"x")), FORM, b"", FORM_TYPE)
    assert one.named is None
    one.model = "only"
    assert sent(one)[1] is one.body


@pytest.mark.parametrize(
    ("body", "path", "lines", "code"),
    [
        (b"", CHAT, (), "empty_body"),
        (b"[]", CHAT, (), "invalid_json"),
        (b'{"model":', CHAT, (), "invalid_json"),
        (b'{"model":7}', CHAT, (), "invalid_model"),
        (b'{"model":""}', CHAT, (), "invalid_model"),
        (b"{}", FORM, (b"content-type: application/json",), "unsupported_content_type"),
        (b"{}", FORM, (), "unsupported_content_type"),
        (b"{}", FORM, (b"content-type: multipart/form-data",), "invalid_multipart"),
        (b"{}", FORM, (FORM_TYPE,), "invalid_multipart"),
        (form((b"model", b"m"))[:-9], FORM, (FORM_TYPE,), "invalid_multipart"),
    ],
)
def test_bodies_that_can_t_be_read(body: bytes, path: bytes, lines: tuple[bytes, ...], code: str) -> None:
    with pytest.raises(ClientError) as caught:
        inbound(body, path, b"", *lines)
    assert (caught.value.http_status, caught.value.code) == (400, code)


@given(st.binary(max_size=200) | st.binary(max_size=60).map(lambda noise: form((b"model", b"m"))[:40] + noise))
def test_noise_is_refused_or_passed(noise: bytes) -> None:
    for path in (CHAT, FORM):
        try:
            one = inbound(noise, path, b"", FORM_TYPE)
        except ClientError:
            continue
        sent(one)


def test_a_model_in_other_letters_does_not_reach_an_engine_that_reads_it() -> None:
    """Go's JSON reader takes the last of "model" and "Model": the tenant was allowed the first."""
    body = '{"model":"m","Model":"other","messages":[{"Model":"text"}],"MODEL":1,"\u017ftream":true}'.encode()
    _, out = sent(inbound(body), target(keys_in_any_case=True))
    assert json.loads(out) == {"model": "m", "messages": [{"Model": "text"}]}
    _, out = sent(inbound(body))
    assert out is body
    usual = b'{"model": "m"}'
    assert sent(inbound(usual), target(keys_in_any_case=True))[1] is usual
