"""Trails → OpenTelemetry spans → OTLP over HTTP. The only file that knows OpenTelemetry (extra `otel`).

A server span for the request, and under it a client span for each attempt. Attributes have the names of the semantic
conventions for generative AI where those have one, else `kilocard.…`.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.sdk.trace.sampling import ALWAYS_ON
from opentelemetry.trace import NonRecordingSpan, Span, SpanContext, SpanKind, Status, StatusCode, TraceFlags
from opentelemetry.trace import set_span_in_context as under
from opentelemetry.util.types import AttributeValue

from kilocard import __version__
from kilocard.gateway.tracing import Traced
from kilocard.gateway.trail import Attempt
from kilocard.net.target import parse_target

Attributes = dict[str, AttributeValue]

#: seconds for one batch, its repetitions included
TIMEOUT = 5.0
#: gen_ai.operation.name by path; of the others, the path says it
OPERATIONS = {
    "/v1/chat/completions": "chat",
    "/v1/responses": "chat",
    "/v1/messages": "chat",
    "/v1/completions": "text_completion",
    "/v1/embeddings": "embeddings",
}


class _Ids(IdGenerator):
    """The ids were made when the requests came, since engines were told them: here they are only given out."""

    trace_id = span_id = 0

    def generate_trace_id(self) -> int:
        return self.trace_id

    def generate_span_id(self) -> int:
        return self.span_id


class _Gathered(SpanProcessor):
    """Spans that have ended, for one batch."""

    def __init__(self) -> None:
        self.spans: list[ReadableSpan] = []

    def on_end(self, span: ReadableSpan) -> None:
        self.spans.append(span)


class OtlpExporter:
    """A tracing.Exporter. `endpoint` is the collector's base URL, or the whole one that ends in /v1/traces.

    The usual variables count too: OTEL_EXPORTER_OTLP_HEADERS (for a collector that wants a key), OTEL_SERVICE_NAME,
    OTEL_RESOURCE_ATTRIBUTES, OTEL_EXPORTER_OTLP_CERTIFICATE.
    """

    def __init__(self, endpoint: str) -> None:
        # It warns of every attempt; tracing.py says once that the collector is away.
        logging.getLogger("opentelemetry.exporter").setLevel(logging.CRITICAL)
        base = endpoint.rstrip("/")
        url = base if base.endswith("/v1/traces") else f"{base}/v1/traces"
        scheme, _, rest = url.partition("://")
        self.where = f"{scheme}://{rest.rpartition('@')[2].partition('?')[0]}"  # no password
        self._exporter = OTLPSpanExporter(url, timeout=TIMEOUT)
        self._ids = _Ids()
        self._gathered = _Gathered()
        service = {"service.name": os.environ.get("OTEL_SERVICE_NAME", "kilocard"), "service.version": __version__}
        provider = TracerProvider(
            sampler=ALWAYS_ON, resource=Resource.create(service), id_generator=self._ids, shutdown_on_exit=False
        )
        provider.add_span_processor(self._gathered)
        self._tracer = provider.get_tracer("kilocard.gateway", __version__)

    def export(self, batch: Sequence[Traced]) -> bool:
        for request in batch:
            self._make(request)
        spans, self._gathered.spans = self._gathered.spans, []
        return self._exporter.export(spans) is SpanExportResult.SUCCESS

    def close(self) -> None:
        self._exporter.shutdown()  # type: ignore[no-untyped-call]  # theirs has no types

    def _make(self, request: Traced) -> None:
        trail = request.trail
        trace = trail.trace
        assert trace is not None

        def nanoseconds(at: float) -> int:
            return int((at + request.epoch) * 1e9)

        above = trace.parent and NonRecordingSpan(
            SpanContext(trace.parent.trace_id, trace.parent.span_id, True, TraceFlags(trace.parent.flags))
        )
        self._ids.trace_id, self._ids.span_id = trace.span.trace_id, trace.span.span_id
        name = f"{operation(request)} {request.model}"
        span = self._tracer.start_span(
            name,
            under(above) if above else None,
            SpanKind.SERVER,
            _request(request),
            start_time=nanoseconds(request.arrived),
        )
        for at, reason in trail.holds:
            span.add_event("kilocard.hold", {"kilocard.reason": reason}, nanoseconds(at))
        for attempt, address in zip((*trail.attempts, *trail.beside), request.addresses, strict=True):
            if attempt.send.attempt > 1:
                event = "kilocard.hedge" if attempt.hedge else "kilocard.retry"
                span.add_event(event, {"kilocard.replica": attempt.send.replica}, nanoseconds(attempt.sent_at))
            self._ids.span_id = attempt.span_id
            child = self._tracer.start_span(
                name, under(span), SpanKind.CLIENT, _attempt(attempt, address), start_time=nanoseconds(attempt.sent_at)
            )
            last = attempt is trail.attempts[-1]
            _judge(child, attempt.fault or (_error(request) if last else ""))
            if last and request.content_at:
                child.add_event("kilocard.first_token", {}, nanoseconds(request.content_at))
            child.end(nanoseconds(attempt.ended_at or request.ended))
        if request.content_at:
            span.add_event("kilocard.first_token", {}, nanoseconds(request.content_at))
        if request.outcome != "client_error":  # semantic conventions: of a 4xx a server's span is no error
            _judge(span, _error(request))
        span.end(nanoseconds(request.ended))


def operation(request: Traced) -> str:
    return OPERATIONS.get(request.path) or request.path.rpartition("/")[2]


def _request(request: Traced) -> Attributes:
    used = request.used
    found: Attributes = {
        "gen_ai.operation.name": operation(request),
        "gen_ai.request.model": request.model,
        "gen_ai.usage.input_tokens": used.prompt,
        "gen_ai.usage.output_tokens": used.output,
        "http.request.method": "POST",
        "url.path": request.path,
        "kilocard.request_id": request.request_id,
        "kilocard.stream": request.stream,
        "kilocard.outcome": request.outcome,
        "kilocard.attempts": len(request.trail.attempts),
        "kilocard.held_s": request.held_s,
    }
    if request.status:  # else its client left before there was one
        found["http.response.status_code"] = request.status
    if request.tenant:
        found["kilocard.tenant"] = request.tenant
    if request.content_at:
        found["kilocard.ttft_s"] = request.content_at - request.arrived
    if request.trail.attempts:
        send = request.trail.attempts[-1].send
        found |= {"kilocard.pool": send.pool, "kilocard.replica": send.replica, "kilocard.reason": send.decision.reason}
    if error := _error(request):
        found["error.type"] = error
    return found


def _attempt(attempt: Attempt, address: str) -> Attributes:
    send = attempt.send
    found: Attributes = {
        "kilocard.attempt": send.attempt,
        "kilocard.pool": send.pool,
        "kilocard.replica": send.replica,
        "kilocard.reason": send.decision.reason,
        "kilocard.score": send.decision.score,
    }
    if address:
        target = parse_target(address)
        found |= {"server.address": target.host, "server.port": target.port}
    if attempt.fault:
        found["error.type"] = attempt.fault
    if attempt.status is not None:
        found["http.response.status_code"] = attempt.status
    return found


def _error(request: Traced) -> str:
    """A low-cardinality reason, or "": our code, the engine's status, or who gave up."""
    if request.outcome == "ok":
        return ""
    return request.code or (str(request.status) if request.status >= 400 else request.outcome)


def _judge(span: Span, error: str) -> None:
    if error:
        span.set_status(Status(StatusCode.ERROR))
