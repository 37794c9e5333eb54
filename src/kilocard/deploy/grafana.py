"""Grafana: one dashboard. First the four to look at first, then how users are served, then where it comes from.

R60: GPU utilisation, GPU memory, network, requests that wait; quality is the tail, the queue, tokens a second and
preemptions, and utilisation only a reference.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from kilocard.deploy.target import Files, RenderOptions, Target
from kilocard.metrics import names
from kilocard.metrics.names import Metric
from kilocard.spec.model import ClusterSpec

Thing = dict[str, Any]
#: Grafana's grid is 24 wide; four panels in a row
WIDTH, HEIGHT = 6, 8


@dataclass(frozen=True, slots=True)
class Panel:
    title: str
    #: expression and legend
    queries: tuple[tuple[str, str], ...]
    unit: str = "short"
    about: str = ""
    most: float | None = None


def _quantile(share: float, metric: Metric, by: str = ", model") -> str:
    return f"histogram_quantile({share:g}, sum by (le{by}) (rate({metric.name}_bucket[$__rate_interval])))"


def _network(way: str) -> str:
    return f'sum by (instance) (rate(node_network_{way}_bytes_total{{device!="lo"}}[$__rate_interval]))'


def _rate(metric: Metric, by: str, where: str = "") -> str:
    return f"sum by ({by}) (rate({metric.name}{where}[$__rate_interval]))"


#: rows of the dashboard
ROWS: tuple[tuple[str, tuple[Panel, ...]], ...] = (
    (
        "The first four",
        (
            Panel(
                "GPU utilisation",
                (("avg by (Hostname) (DCGM_FI_DEV_GPU_UTIL)", "{{Hostname}}"),),
                "percent",
                "Only a reference: a GPU shows 100 % while it decodes a single stream.",
                100,
            ),
            Panel(
                "GPU memory",
                (
                    (
                        "sum by (Hostname) (DCGM_FI_DEV_FB_USED) / sum by (Hostname)"
                        " (DCGM_FI_DEV_FB_USED + DCGM_FI_DEV_FB_FREE)",
                        "{{Hostname}}",
                    ),
                    (f"avg by (pool) ({names.REPLICA_KV_USAGE.name})", "KV cache of {{pool}}"),
                ),
                "percentunit",
                "Engines take their memory at the start; what fills up in serving is the KV cache.",
                1,
            ),
            Panel(
                "Network",
                (
                    (_network("transmit"), "out of {{instance}}"),
                    (_network("receive"), "into {{instance}}"),
                ),
                "Bps",
            ),
            Panel(
                "Requests that wait",
                (
                    (f"sum by (pool) ({names.REPLICA_WAITING.name})", "in engines of {{pool}}"),
                    (f"sum by (model) ({names.HELD_REQUESTS.name})", "in the gateway, {{model}}"),
                ),
                about="Above 20 a replica for 30 s a pool grows (R50), where it has scaling.",
            ),
        ),
    ),
    (
        "How users are served",
        (
            Panel(
                "First token",
                tuple((_quantile(share, names.TTFT), f"p{share * 100:g} {{{{model}}}}") for share in (0.5, 0.95, 0.99)),
                "s",
            ),
            Panel(
                "Between tokens",
                tuple((_quantile(share, names.ITL), f"p{share * 100:g} {{{{model}}}}") for share in (0.5, 0.95, 0.99)),
                "s",
            ),
            Panel("Tokens a second", ((_rate(names.GENERATION_TOKENS, "model"), "{{model}}"),)),
            Panel(
                "Preemptions a second",
                (("sum by (pool) (rate(vllm:num_preemptions_total[$__rate_interval]))", "{{pool}}"),),
                about="Above zero: the KV cache is too small for what is admitted.",
            ),
            Panel("Requests a second", ((_rate(names.REQUESTS, "outcome"), "{{outcome}}"),)),
            Panel("Whole answer", ((_quantile(0.95, names.E2E), "p95 {{model}}"),), "s"),
            Panel("Wait in the gateway", ((_quantile(0.95, names.HOLD_TIME), "p95 {{model}}"),), "s"),
            Panel("Refused, by code", ((_rate(names.REFUSED, "code"), "{{code}}"),)),
        ),
    ),
    (
        "The fleet",
        (
            Panel(
                "Replicas by state",
                ((f"sum by (pool, state) ({names.REPLICA_STATE.name})", "{{pool}} {{state}}"),),
                about="ready, slow_start and full serve.",
            ),
            Panel(
                "Replicas wanted and there",
                (
                    (f"max by (pool) ({names.REPLICAS_WANTED.name})", "wanted, {{pool}}"),
                    (f"max by (pool, phase) ({names.REPLICAS.name})", "{{phase}}, {{pool}}"),
                ),
            ),
            Panel("Attempts that failed", ((_rate(names.RETRIES, "reason"), "{{reason}}"),)),
            Panel("Age of readings", ((f"max by (pool) ({names.REPLICA_SAMPLE_AGE.name})", "{{pool}}"),), "s"),
        ),
    ),
    (
        "The gateway",
        (
            Panel("Connections", ((f"sum by (instance) ({names.OPEN_CONNECTIONS.name})", "{{instance}}"),)),
            Panel("Bytes held", ((f"sum by (instance) ({names.BUFFERED_BYTES.name})", "{{instance}}"),), "bytes"),
            Panel(
                "A decision",
                ((_quantile(0.99, names.DECISION_TIME, ""), "p99"),),
                "s",
            ),
            Panel("Limited, by tenant", ((_rate(names.LIMITED, "tenant, reason"), "{{tenant}} {{reason}}"),)),
        ),
    ),
)


def render(spec: ClusterSpec, options: RenderOptions) -> Files:
    """kilocard.json, to be imported or put where Grafana's provisioning looks."""
    return {"kilocard.json": json.dumps(dashboard(), indent=2) + "\n"}


def dashboard() -> Thing:
    panels: list[Thing] = []
    y = 0
    for title, row in ROWS:
        panels.append(
            {
                "type": "row",
                "title": title,
                "id": len(panels) + 1,
                "collapsed": False,
                "gridPos": {"h": 1, "w": 24, "x": 0, "y": y},
                "panels": [],
            }
        )
        y += 1
        for number, panel in enumerate(row):
            place = {"h": HEIGHT, "w": WIDTH, "x": number % 4 * WIDTH, "y": y + number // 4 * HEIGHT}
            panels.append(_panel(panel, len(panels) + 1, place))
        y += -(-len(row) // 4) * HEIGHT
    return {
        "title": "kilocard",
        "uid": "kilocard",
        "tags": ["kilocard", "llm"],
        "schemaVersion": 39,
        "editable": True,
        "refresh": "10s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {
            "list": [
                {"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Data source", "hide": 0}
            ]
        },
        "panels": panels,
    }


def _panel(panel: Panel, number: int, place: Thing) -> Thing:
    source = {"type": "prometheus", "uid": "${datasource}"}
    bounds: Thing = {"min": 0} | ({} if panel.most is None else {"max": panel.most})
    return {
        "type": "timeseries",
        "title": panel.title,
        "description": panel.about,
        "id": number,
        "gridPos": place,
        "datasource": source,
        "fieldConfig": {
            "defaults": {"unit": panel.unit, **bounds, "custom": {"lineWidth": 1, "fillOpacity": 10}},
            "overrides": [],
        },
        "options": {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi"}},
        "targets": [
            {"refId": chr(ord("A") + place), "expr": expr, "legendFormat": legend, "datasource": source}
            for place, (expr, legend) in enumerate(panel.queries)
        ],
    }


GRAFANA = Target("grafana", "a dashboard", render)
