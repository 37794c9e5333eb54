"""docs/gateway.md says what the gateway does, docs/observability.md names what it exports."""

from __future__ import annotations

import dataclasses
import re

from markdown_pages import ROOT

from kilocard.gateway.gathering import RETRYABLE
from kilocard.gateway.heads import _DROP, _REQUEST, _RESPONSE
from kilocard.gateway.routes import HEALTH, INFERENCE, MODELS, READY
from kilocard.metrics.names import ALL
from kilocard.spec.model import Limits, Timeouts

GATEWAY = (ROOT / "docs" / "gateway.md").read_text()
OBSERVABILITY = (ROOT / "docs" / "observability.md").read_text()


def test_every_route_is_on_the_page() -> None:
    for path in [*INFERENCE, MODELS, *HEALTH, READY]:
        assert f"`{path.decode()}`" in GATEWAY


def test_every_time_out_and_limit_is_on_the_page() -> None:
    for settings in (Timeouts, Limits):
        for field in dataclasses.fields(settings):
            assert f"`{field.name}`" in GATEWAY


def test_statuses_that_are_retried() -> None:
    *some, last = sorted(RETRYABLE)
    assert f"the engine answers {', '.join(map(str, some))} or {last}" in GATEWAY


def test_dropped_headers_are_named() -> None:
    hop = {"keep-alive", "proxy-authenticate", "proxy-authorization", "proxy-connection", "te", "trailer", "upgrade"}
    for table in (_REQUEST, _RESPONSE):
        for field, do in table.items():
            if do == _DROP and field not in hop and field != "host":
                assert f"`{field.removeprefix('x-forwarded')}`" in GATEWAY or f"`{field}`" in GATEWAY, field


def test_metrics_in_queries_exist() -> None:
    known = {metric.name for metric in ALL}
    for name in set(re.findall(r"\bkilocard_\w+", OBSERVABILITY)):
        assert name.removesuffix("_bucket") in known, name
