"""When a ledger is kept, and how a span of time is cut into days and edges."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kilocard.spec.model import ClusterSpec, GatewaySpec, TenantSpec
from kilocard.spec.services import OidcSpec, UsageSpec
from kilocard.tenancy.usage import keeps_ledger
from kilocard.tenancy.usage_report import DAY, Line, parts, total

OPEN = ClusterSpec()
TENANTS = ClusterSpec(tenants={"a": TenantSpec("a")})


def with_usage(spec: ClusterSpec, usage: UsageSpec) -> ClusterSpec:
    return replace(spec, gateway=replace(spec.gateway, usage=usage))


@pytest.mark.parametrize(
    ("spec", "kept"),
    [
        (OPEN, False),
        (TENANTS, True),
        (ClusterSpec(gateway=GatewaySpec(oidc=OidcSpec("https://id.example"))), True),
        (with_usage(OPEN, UsageSpec(enabled=True)), True),
        (with_usage(OPEN, UsageSpec(flush=2.0)), True),
        (with_usage(TENANTS, UsageSpec(enabled=False)), False),
        (with_usage(OPEN, UsageSpec(enabled=False, flush=2.0)), False),
    ],
)
def test_who_keeps_a_ledger(spec: ClusterSpec, kept: bool) -> None:
    assert keeps_ledger(spec) is kept


moments = st.one_of(st.none(), st.integers(-2 * DAY, 6 * DAY).map(float))


@given(since=moments, until=moments, moment=st.integers(-3 * DAY, 7 * DAY))
def test_days_and_edges_cover_a_span_once(since: float | None, until: float | None, moment: int) -> None:
    span = parts(since, until)
    day = moment // DAY
    times = (span.first is None or day >= span.first) and (span.last is None or day < span.last)
    times += sum(begin <= moment < end for begin, end in span.edges)
    inside = (since is None or moment >= since) and (until is None or moment < until)
    assert times == inside


def test_whole_days_need_no_single_records() -> None:
    assert parts(3.0 * DAY, 5.0 * DAY) == (3, 5, ())
    assert parts(None, None) == (None, None, ())


def test_a_total_and_its_mean() -> None:
    lines = [Line(("a",), 2, 1, 0, 10, 4, 6, 1.5, 1), Line(("b",), 1, 0, 1, 5, 0, 2, 0.5, 1)]
    assert total(lines) == Line((), 3, 1, 1, 15, 4, 8, 2.0, 2)
    assert total(lines).mean_ttft == 1.0
    assert total([]).mean_ttft is None
