"""Request smuggling: whatever is sent, an engine gets requests that we wrote, each for one that we understood.

The same bytes go to a real nginx; where it reads them otherwise, `ambiguous.py` says why.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from ambiguous import BODY, CASES, LOOSER, PATH, STRICTER, TAKEN, request
from stub_engine import Setup, answer, gateway_over, run
from two_readers import Got, Recorder, ask, nginx

from free_ports import free_port
from kilocard.core.replica import Endpoint, Found, Lost


@contextlib.asynccontextmanager
async def gateway_to(port: int) -> AsyncIterator[Setup]:
    """One replica, at that port."""
    async with gateway_over(answer) as setup:
        for replica in list(setup.gateway.plane.targets):
            setup.gateway.apply(Lost(replica, "another takes its place"))
        setup.gateway.apply(Found(Endpoint("p/recorder", "p", f"http://127.0.0.1:{port}")))
        yield setup


@contextlib.asynccontextmanager
async def recorder() -> AsyncIterator[Recorder]:
    one = Recorder()
    await one.start()
    try:
        yield one
    finally:
        await one.stop()


def is_ours(got: Got, port: int) -> bool:
    """Written by the gateway: one route, one Host, one length, nothing that could be read in two ways."""
    target = got.lines[0].removeprefix(b"POST ").removesuffix(b" HTTP/1.1").partition(b"?")[0]
    names = [line.partition(b":")[0].lower() for line in got.lines[1:]]
    return (
        target in (PATH, b"/v1/audio/transcriptions")
        and got.values(b"host") == [b"127.0.0.1:%d" % port]
        and got.values(b"content-length") == [b"%d" % len(got.body)]
        and got.values(b"x-request-id")[0].startswith(b"kc-")
        and not {b"transfer-encoding", b"connection", b"upgrade", b"expect", b"te"}.intersection(names)
        and not any(b"_" in name for name in names)
        and all(b":" in line and all(byte == 9 or 32 <= byte != 127 for byte in line) for line in got.lines[1:])
    )


def test_every_ambiguous_request_is_refused_or_written_anew(tmp_path: Path) -> None:
    assert len(CASES) >= 200

    async def story() -> None:
        back = free_port()
        async with recorder() as engine, nginx(tmp_path, {back: engine.port}), gateway_to(engine.port) as setup:
            for name, raw in CASES:
                said = await ask(setup.gateway.port, raw, answered=name in TAKEN)
                got, strays = list(engine.got), list(engine.strays)
                assert not strays, name
                if name in TAKEN:
                    assert [one.body for one in got] == [BODY], name
                    assert is_ours(got[0], engine.port), (name, got[0].head)
                    assert said.statuses[0] == 200, name
                else:
                    assert not got, name
                    # Without an answer it waits for bytes that its length promises.
                    assert not said.statuses or said.refused, name
                    assert said.closed or not said.statuses or said.statuses[0] in (404, 405, 415), (name, said)
                engine.got.clear()
                await ask(back, raw, answered=name not in LOOSER if name in TAKEN else name in STRICTER)
                nginx_takes = any(one.body in (BODY, b"") for one in engine.got)
                engine.got.clear()
                engine.strays.clear()
                if name in TAKEN:
                    assert nginx_takes is (name not in LOOSER), f"{name}: say in LOOSER why we take it"
                else:
                    assert nginx_takes is (name in STRICTER), f"{name}: say in STRICTER why we refuse it"

    run(story(), seconds=60)


HIDDEN = b"POST /v1/embeddings HTTP/1.1\r\nHost: hidden\r\nX-Hidden: 1\r\nContent-Length: 13\r\n\r\n" + BODY
FORM = (
    b'\r\n--B\r\nContent-Disposition: form-data; name="model"\r\n\r\nm\r\n'
    b'--B\r\nContent-Disposition: form-data; name="file"; filename="f"\r\n\r\n\x00\r\n--B--\r\n'
)
FORM_LINES = (b"Host: gateway", b"Content-Type: multipart/form-data; boundary=B")


def form(*lines: bytes, body: bytes, **more: bytes) -> bytes:
    """A form may begin with anything: a preamble, which hides what another reading of the framing would find."""
    return request(*FORM_LINES, *lines, body=body, target=b"/v1/audio/transcriptions", **more)


_ENDED = b"0\r\n\r\n" + HIDDEN + FORM
_LENGTH = b"Content-Length: %d" % len(_ENDED)
_SIZE = b"%x\r\n" % len(HIDDEN + FORM)
_CODED = _SIZE + HIDDEN + FORM + b"\r\n0\r\n\r\n"
#: to a reader of lengths the hidden request is in the body; a reader of chunks finds an end before it
ENDED = [
    b"Transfer-Encoding: chunked", b"transfer-encoding:chunked", b"Transfer-Encoding : chunked",
    b"Transfer-Encoding: xchunked", b"Transfer-Encoding:\tchunked", b"Transfer-Encoding: chunked, identity",
    b"Transfer-Encoding: identity, chunked", b"Transfer-Encoding: identity\r\nTransfer-Encoding: chunked",
    b"X: y\r\n Transfer-Encoding: chunked", b"X: y\nTransfer-Encoding: chunked", b"X: y\rTransfer-Encoding: chunked",
    b"Transfer_Encoding: chunked", b"Transfer-Encoding:\r\n chunked", b"Transfer-Encoding: chunked\x00",
    b"\x00Transfer-Encoding: chunked", b"Transfer-Encoding: \"chunked\"", b"TE: chunked",
    b"Connection: content-length", b"Connection: close, content-length", b"Content-Length: 0", b"Content_Length: 0",
    b"Content-Length: 5", b"Content-Length : 0", b"X: y\r\n Content-Length: 0", b"X: y\nContent-Length: 0",
    b"Connection: Upgrade\r\nUpgrade: h2c", b"Connection: Upgrade\r\nUpgrade: websocket", b"Expect: 100-continue",
    b"Expect: 200-ok", b"X-HTTP-Method-Override: GET",
]  # fmt: skip
#: to a reader of chunks the hidden request is in one; a reader of lengths finds an end before it
CODED = [
    b"Content-Length: %d" % len(_SIZE), b"content-length:%d" % len(_SIZE), b"Content-Length : %d" % len(_SIZE),
    b"Content_Length: %d" % len(_SIZE), b"Content-Length: +%d" % len(_SIZE), b"X: y\r\n Content-Length: 0",
    b"X: y\nContent-Length: %d" % len(_SIZE), b"Connection: transfer-encoding", b"Content-Length: 0",
    b"Connection: Upgrade\r\nUpgrade: h2c", b"Expect: 100-continue",
]  # fmt: skip
#: and chunks that two readers may end elsewhere
CHUNKS = [
    b"%x;\n%b\r\n%b\r\n0\r\n\r\n" % (len(HIDDEN + FORM), b"0", HIDDEN + FORM),
    b"0%x\n0\r\n\r\n%b\r\n0\r\n\r\n" % (len(HIDDEN + FORM), HIDDEN + FORM),
    b"1%015x0\r\n0\r\n\r\n%b\r\n0\r\n\r\n" % (len(HIDDEN + FORM), HIDDEN + FORM),
    b"%x\r\n%b0\r\n\r\n0\r\n\r\n" % (len(HIDDEN + FORM), HIDDEN + FORM),
    b"%x \r\n%b\r\n0\r\n\r\n" % (len(HIDDEN + FORM), HIDDEN + FORM),
    b'%x;a="\r\n0\r\n\r\n"\r\n%b\r\n0\r\n\r\n' % (len(HIDDEN + FORM), HIDDEN + FORM),
]  # fmt: skip
PAYLOADS = [
    *[form(_LENGTH, line, body=_ENDED) for line in ENDED],
    *[form(line, _LENGTH, body=_ENDED) for line in ENDED],
    *[form(b"Transfer-Encoding: chunked", line, body=_CODED) for line in CODED],
    *[form(line, b"Transfer-Encoding: chunked", body=_CODED) for line in CODED],
    *[form(b"Transfer-Encoding: chunked", body=coded) for coded in CHUNKS],
    form(_LENGTH, body=_ENDED, version=b"HTTP/1.0"),
    form(_LENGTH, b"Connection: keep-alive", body=_ENDED, version=b"HTTP/1.0"),
]


@pytest.mark.parametrize("order", ["nginx before us", "nginx behind us", "alone"])
def test_a_hidden_request_never_reaches_an_engine(order: str, tmp_path: Path) -> None:
    """In no payload is it a request of its own by any right reading, so it must not be one to anybody."""

    async def story() -> None:
        between = free_port()
        reached = 0
        async with recorder() as engine:
            if order == "nginx behind us":
                proxy, target = {between: engine.port}, between
            else:
                proxy, target = {}, engine.port
            async with contextlib.AsyncExitStack() as stack:
                if proxy:
                    await stack.enter_async_context(nginx(tmp_path, proxy))
                setup = await stack.enter_async_context(gateway_to(target))
                door = setup.gateway.port
                if order == "nginx before us":
                    await stack.enter_async_context(nginx(tmp_path, {between: door}))
                    door = between
                for raw in PAYLOADS:
                    await ask(door, raw, patience=0.06)
                    # The next one, of somebody else, on connections that the first may have spoiled.
                    usual = await ask(door, request(b"Host: gateway", b"Content-Length: 13"), answered=True)
                    assert usual.statuses == [200], raw
                    for one in engine.got:
                        assert not one.values(b"x-hidden") and b"embeddings" not in one.lines[0], (raw, one.head)
                        assert order == "nginx behind us" or is_ours(one, engine.port), (raw, one.head)
                    assert engine.got[-1].body == BODY, raw
                    assert not engine.strays, (raw, engine.strays)
                    reached += len(engine.got) - 1
                    engine.got.clear()
        assert reached >= 10, "hardly any payload got through as a whole: the test has lost its sense"

    run(story(), seconds=60)


def test_clients_never_name_an_upstream() -> None:
    """SSRF: all that names a host names one that listens, and nobody ever connects to it."""

    async def story() -> None:
        async with recorder() as evil, recorder() as engine, gateway_to(engine.port) as setup:
            there = b"127.0.0.1:%d" % evil.port
            url = b"http://" + there
            requests = [
                request(b"Host: x", b"Content-Length: 13", target=url + PATH),
                request(b"Host: " + there, b"Content-Length: 13"),
                request(b"Host: " + there, b"Content-Length: 13", target=b"http://gateway" + PATH),
                request(b"Host: x", b"Content-Length: 13", target=b"//" + there + PATH),
                request(b"Host: x", b"Content-Length: 13", target=PATH + b"?url=" + url),
                request(b"Host: x", b"Content-Length: 13", target=b"/v1/../" + url),
                request(b"Host: x", b"Content-Length: 13", target=b"/v1/%2e%2e/" + url.replace(b"/", b"%2f")),
                request(b"Host: x", b"Content-Length: 13", target=b"@" + there + PATH),
                request(b"Host: x", b"Content-Length: 13", target=there, method=b"CONNECT"),
                request(b"Host: x", target=b"/v1/models/" + url, method=b"GET", body=b""),
                *[
                    request(b"Host: x", name + b": " + value, b"Content-Length: 13")
                    for name in (
                        b"X-Forwarded-Host", b"X-Forwarded-For", b"X-Forwarded-Proto", b"Forwarded", b"X-Host",
                        b"X-Original-URL", b"X-Rewrite-URL", b"X-Real-IP", b"Referer", b"Location", b"Destination",
                        b"x-gateway-destination-endpoint", b"Proxy-Connection",
                    )
                    for value in (there, url, b"host=" + there)
                ],
                *[
                    request(b"Host: x", b"Content-Length: %d" % len(body), body=body)
                    for model in (url, url + PATH, b"//" + there, b"m@" + there, b"../" + there, b"m\\r\\nHost: a")
                    for body in (b'{"model":"%b"}' % model,)
                ],
            ]  # fmt: skip
            for raw in requests:
                await ask(setup.gateway.port, raw, patience=0.06)
            assert not evil.got and not evil.strays and not evil.connections
            assert len(engine.got) > 30
            for one in engine.got:
                assert is_ours(one, engine.port), one.head
                assert not one.values(b"x-forwarded-host") and not one.values(b"forwarded")

    run(story())
