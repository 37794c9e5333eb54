"""Tracing as the cluster file asks for it."""

from __future__ import annotations

from random import Random

from kilocard.core.errors import UsageError
from kilocard.gateway.server import Gateway
from kilocard.gateway.tracing import Tracing
from kilocard.spec.services import TracingSpec


def tracing(spec: TracingSpec, gateway: Gateway) -> Tracing:
    """A part for the gateway. Raises UsageError where the extra is missing."""
    try:
        from kilocard.gateway.otlp import OtlpExporter
    except ImportError as error:
        raise UsageError(
            f"gateway.tracing needs OpenTelemetry ({error.name} is missing): pip install 'kilocard[otel]'"
        ) from error
    plane = gateway.plane
    rng = Random()  # noqa: S311  # ids have to be unlike each other, not secret
    return Tracing(OtlpExporter(spec.endpoint), spec.sample, plane, plane.telemetry.registry, rng)
