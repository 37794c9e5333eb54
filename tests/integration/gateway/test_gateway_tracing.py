"""Trace context and spans, told to a real OTLP receiver: an HTTP server that decodes what collectors get."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import threading
from collections.abc import AsyncIterator, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as collector
from stub_engine import PATIENT, Asked, Setup, Wire, answer, die, error500, gateway_over, hang, run, until, whole

from kilocard.cli.traces import tracing
from kilocard.core.errors import UsageError
from kilocard.gateway.trail import trace_id
from kilocard.spec.model import HedgeSpec, ModelSpec, TenantSpec
from kilocard.spec.services import TracingSpec

PARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
UNSAMPLED = PARENT[:-1] + "0"


class Receiver:
    """Spans that were posted to /v1/traces."""

    def __init__(self) -> None:
        self.spans: list[Any] = []
        self.resources: list[dict[str, Any]] = []
        self.status = 200
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                if self.headers.get("content-encoding") == "gzip":
                    body = gzip.decompress(body)
                if receiver.status == 200 and self.path == "/v1/traces":
                    request = collector.ExportTraceServiceRequest.FromString(body)
                    for group in request.resource_spans:
                        receiver.resources.append(attributes(group.resource))
                        for scope in group.scope_spans:
                            receiver.spans += scope.spans
                self.send_response(receiver.status)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


def attributes(of: Any) -> dict[str, Any]:
    return {item.key: getattr(item.value, item.value.WhichOneof("value")) for item in of.attributes}


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    monkeypatch.setattr("kilocard.gateway.tracing.EVERY", 0.05)
    one = Receiver()
    yield one
    one.close()


@contextlib.asynccontextmanager
async def traced(*scripts: Any, url: str, sample: float = 1.0, **more: Any) -> AsyncIterator[Setup]:
    async with gateway_over(*scripts, **more) as setup:
        part = tracing(TracingSpec(url, sample), setup.gateway)
        await part.start()
        try:
            yield setup
        finally:
            await part.close()


async def ask(setup: Setup, stream: bool = False, **headers: str) -> Any:
    body = {"model": "m", "messages": [{"role": "user", "content": "SECRET"}], "stream": stream}
    return await setup.post(body, headers=list(headers.items()))


def counted(setup: Setup, result: str) -> int:
    page = setup.gateway.plane.telemetry.registry.render().decode()
    return int(page.split(f'kilocard_traces_total{{result="{result}"}} ')[1].split()[0])


def by_kind(receiver: Receiver) -> tuple[list[Any], list[Any]]:
    """Server spans, client spans."""
    return [span for span in receiver.spans if span.kind == 2], [span for span in receiver.spans if span.kind == 3]


def test_without_tracing_the_clients_context_reaches_the_engine_unchanged() -> None:
    async def story() -> None:
        async with gateway_over(answer) as setup:
            await ask(setup, traceparent=PARENT, tracestate="vendor=1,other=2")
            await ask(setup, traceparent="nonsense")
            await ask(setup)
            first, second, third = setup.engines[0].asked
            assert (first.headers["traceparent"], first.headers["tracestate"]) == (PARENT, "vendor=1,other=2")
            assert second.headers["traceparent"] == "nonsense"
            assert "traceparent" not in third.headers

    run(story())


@pytest.mark.parametrize("stream", [False, True])
def test_a_request_is_a_server_span_with_a_client_span_below_it(receiver: Receiver, stream: bool) -> None:
    async def story() -> None:
        async with traced(answer, url=receiver.url) as setup:
            await ask(setup, stream, traceparent=PARENT, tracestate="vendor=1")
            asked = setup.engines[0].asked[0]
        (server,), (client,) = by_kind(receiver)
        trace = bytes.fromhex(PARENT[3:35])
        assert server.trace_id == client.trace_id == trace
        assert server.parent_span_id.hex() == PARENT[36:52] and client.parent_span_id == server.span_id
        assert asked.headers["traceparent"] == f"00-{trace.hex()}-{client.span_id.hex()}-01"
        assert asked.headers["tracestate"] == "vendor=1"
        said = attributes(server)
        assert server.name == "chat m" and said["gen_ai.operation.name"] == "chat"
        assert said["gen_ai.request.model"] == "m" and said["gen_ai.usage.input_tokens"] > 0
        assert said["gen_ai.usage.output_tokens"] > 0 and said["http.response.status_code"] == 200
        assert (said["kilocard.pool"], said["kilocard.replica"], said["kilocard.attempts"]) == ("p", "p/0", 1)
        assert said["kilocard.outcome"] == "ok" and "error.type" not in said and server.status.code == 0
        assert (attributes(client)["server.address"], attributes(client)["server.port"]) == (
            "127.0.0.1",
            setup.engines[0].port,
        )
        assert server.start_time_unix_nano <= client.start_time_unix_nano <= client.end_time_unix_nano
        assert client.end_time_unix_nano <= server.end_time_unix_nano
        assert ("kilocard.first_token" in [event.name for event in server.events]) is stream
        assert ("kilocard.ttft_s" in said) is stream
        assert receiver.resources[0]["service.name"] == "kilocard"
        assert "SECRET" not in str(receiver.spans)

    run(story())


def test_a_client_that_leaves_before_the_answer_has_no_status(receiver: Receiver) -> None:
    async def story() -> None:
        async with traced(hang, url=receiver.url, timeouts=PATIENT) as setup:
            _, writer = await setup.raw()
            body = b'{"model":"m"}'
            head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % len(body)
            writer.write(head + body)
            await until(lambda: setup.engines[0].asked)
            writer.close()
            await setup.settles()
        (server,), _ = by_kind(receiver)
        said = attributes(server)
        assert said["error.type"] == said["kilocard.outcome"] == "client_gone"
        assert "http.response.status_code" not in said

    run(story())


def test_a_clients_own_fault_is_no_error_of_the_gateway(receiver: Receiver) -> None:
    """The semantic conventions of HTTP: alerts on errors of a service are not for 4xx. The call that got it is one."""

    async def too_long(asked: Asked, wire: Wire) -> None:
        await wire.send(whole(b'{"error":{"message":"too long"}}', "400 Bad Request"))

    async def story() -> None:
        async with traced(too_long, url=receiver.url) as setup:
            assert (await ask(setup)).status == 400
        (server,), (client,) = by_kind(receiver)
        assert (server.status.code, client.status.code) == (0, 2)
        said = attributes(server)
        assert (said["http.response.status_code"], said["error.type"]) == (400, "400")

    run(story())


@pytest.mark.parametrize("becomes", ["won", "lost", "failed"])
def test_a_hedge_has_a_span_of_its_own_which_its_engine_is_told(receiver: Receiver, becomes: str) -> None:
    asked: list[Asked] = []
    go_on = asyncio.Event()

    async def script(one: Asked, wire: Wire) -> None:
        asked.append(one)
        if not one.headers["x-request-id"].endswith("-2"):  # the second one may come first
            await go_on.wait()
            await answer(one, wire)
        elif becomes == "failed":
            wire.reset()
        else:
            await (answer if becomes == "won" else hang)(one, wire)

    async def story() -> None:
        model = ModelSpec("m", {"p": 1}, policy="round_robin", hedge=HedgeSpec(after=0.15, budget=1.0, max_load=1.0))
        async with traced(script, script, url=receiver.url, model=model, timeouts=PATIENT) as setup:
            asking = asyncio.ensure_future(ask(setup, True, traceparent=PARENT))
            hedges = setup.gateway.plane.dispatcher.stats.hedges
            await until(lambda: hedges["m", "sent" if becomes == "lost" else becomes] and len(asked) == 2)
            go_on.set()
            await asking
        (server,), clients = by_kind(receiver)
        told = {2 if one.headers["x-request-id"].endswith("-2") else 1: one.headers["traceparent"] for one in asked}
        spans = {attributes(span)["kilocard.attempt"]: span for span in clients}
        assert {number: span.span_id.hex() for number, span in spans.items()} == {
            number: line.split("-")[2] for number, line in told.items()
        }
        one, two = spans[1], spans[2]
        assert one.parent_span_id == two.parent_span_id == server.span_id
        assert one.start_time_unix_nano < two.start_time_unix_nano < one.end_time_unix_nano
        assert attributes(two).get("error.type") == ("reset" if becomes == "failed" else None)
        assert "error.type" not in attributes(one)
        last, other = (two, one) if becomes == "won" else (one, two)
        assert last.end_time_unix_nano == server.end_time_unix_nano >= other.end_time_unix_nano
        assert [event.name for event in server.events] == ["kilocard.hedge", "kilocard.first_token"]

    run(story())


def test_each_attempt_is_a_span_and_a_retry_an_event(receiver: Receiver) -> None:
    async def story() -> None:
        async with traced(die, answer, url=receiver.url) as setup:
            for _ in range(6):
                await ask(setup)
                if setup.engines[0].asked:
                    break
        servers, clients = by_kind(receiver)
        server = next(span for span in servers if attributes(span)["kilocard.attempts"] == 2)
        first, second = sorted(
            (span for span in clients if span.trace_id == server.trace_id), key=lambda span: span.start_time_unix_nano
        )
        assert attributes(first)["error.type"] == "reset" and first.status.code == 2
        assert "error.type" not in attributes(second) and second.status.code == 0
        assert first.span_id != second.span_id
        sent = [asked.headers["traceparent"].split("-")[2] for engine in setup.engines for asked in engine.asked[-1:]]
        assert sorted(sent) == sorted([first.span_id.hex(), second.span_id.hex()])
        assert [event.name for event in server.events] == ["kilocard.retry"]

    run(story())


def test_errors_holds_and_tenants_are_told(receiver: Receiver) -> None:
    async def story() -> None:
        async def slowly(asked: Asked, wire: Wire) -> None:
            await until(lambda: asked.number > 1 or len(setup.gateway.plane.exchanges) == 2)
            await asyncio.sleep(0.1)
            await error500(asked, wire)

        digest = "sha256:2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b"  # of "secret"
        tenants = {"team-a": TenantSpec("team-a", (digest,))}
        async with traced(slowly, url=receiver.url, tenants=tenants, max_in_flight=1) as setup:
            key = {"authorization": "Bearer secret"}
            await asyncio.gather(ask(setup, **key), ask(setup, **key))
        servers, _ = by_kind(receiver)
        held = max(servers, key=lambda span: attributes(span)["kilocard.held_s"])
        said = attributes(held)
        assert said["kilocard.held_s"] > 0.05 and said["kilocard.tenant"] == "team-a"
        assert (said["http.response.status_code"], said["error.type"]) == (500, "500") and held.status.code == 2
        event = held.events[0]
        assert event.name == "kilocard.hold" and attributes(event) == {"kilocard.reason": "all_busy"}

    run(story())


@pytest.mark.parametrize(
    ("sample", "parent", "spans"),
    [
        (0.0, None, 0),
        (0.0, PARENT, 2),
        (1.0, UNSAMPLED, 0),
        (1.0, None, 2),
        (0.0, "malformed", 0),
        (1.0, "malformed", 2),
    ],
)
def test_the_parent_decides_else_the_share(receiver: Receiver, sample: float, parent: str | None, spans: int) -> None:
    async def story() -> None:
        async with traced(answer, url=receiver.url, sample=sample) as setup:
            given = {} if parent is None else {"traceparent": parent, "tracestate": "vendor=1"}
            await ask(setup, **given)
            headers = setup.engines[0].asked[0].headers
        assert len(receiver.spans) == spans
        if not spans:
            assert headers.get("traceparent") == parent
        elif parent == "malformed":
            assert headers["traceparent"].startswith("00-") and "tracestate" not in headers, "a new trace"
            assert not receiver.spans[0].parent_span_id or not receiver.spans[1].parent_span_id

    run(story())


def test_two_traceparents_are_none(receiver: Receiver) -> None:
    async def story() -> None:
        async with traced(answer, url=receiver.url) as setup:
            await setup.post({"model": "m"}, headers=[("traceparent", PARENT), ("Traceparent", PARENT)])
            assert PARENT[3:35] not in setup.engines[0].asked[0].headers["traceparent"]

    run(story())


def test_a_state_without_its_parent_does_not_go_on_under_our_trace(receiver: Receiver) -> None:
    """Trace context, 3.3: such a `tracestate` is no one's."""

    async def story() -> None:
        async with traced(answer, url=receiver.url) as setup:
            await ask(setup, tracestate="vendor=1")
            headers = setup.engines[0].asked[0].headers
            assert headers["traceparent"] and "tracestate" not in headers

    run(story())


@pytest.mark.parametrize("how", ["refuses", "away"])
def test_a_collector_that_is_down_costs_traces_not_requests(
    receiver: Receiver, how: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("kilocard.gateway.otlp.TIMEOUT", 0.2)
    monkeypatch.setattr("kilocard.gateway.tracing.QUEUE", 4)
    receiver.status = 400

    async def story() -> None:
        url = receiver.url if how == "refuses" else "http://127.0.0.1:1"
        async with traced(answer, url=url) as setup:
            for _ in range(30):
                assert (await ask(setup)).status == 200
            await until(lambda: counted(setup, "dropped"))
        assert counted(setup, "sent") == 0 and counted(setup, "dropped") == 30
        (line,) = [record.getMessage() for record in caplog.records if "traces are dropped" in record.getMessage()]
        assert f"{url}/v1/traces" in line and "gateway.tracing.endpoint" in line

    run(story())


def test_what_is_left_is_sent_at_the_end(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kilocard.gateway.tracing.EVERY", 60.0)

    async def story() -> None:
        async with traced(answer, url=receiver.url) as setup:
            await asyncio.gather(*(ask(setup) for _ in range(50)))
            assert not receiver.spans
        assert len(receiver.spans) == 100 and counted(setup, "sent") == 50

    run(story())


def test_the_trace_is_known_to_logs_and_receipts(receiver: Receiver) -> None:
    seen = []

    async def story() -> None:
        async with traced(answer, url=receiver.url, sample=0.0) as setup:
            setup.gateway.plane.on_end.append(lambda exchange, outcome, now: seen.append(trace_id(exchange)))
            response = await ask(setup, traceparent=PARENT, **{"x-kilocard-receipt": "1"})
            assert f'"trace_id":"{PARENT[3:35]}"' in response.headers["x-kilocard-receipt"]
            await ask(setup, traceparent=UNSAMPLED)
            await ask(setup, traceparent="malformed")
            await ask(setup)

    run(story())
    assert seen == [PARENT[3:35], PARENT[3:35], "", ""]


def test_a_missing_extra_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        async with gateway_over(answer) as setup:
            with pytest.raises(UsageError, match=r"pip install 'kilocard\[otel\]'"):
                tracing(TracingSpec("http://127.0.0.1:1"), setup.gateway)

    monkeypatch.setitem(__import__("sys").modules, "kilocard.gateway.otlp", None)
    run(story())
