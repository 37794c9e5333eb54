"""Alert rules and the dashboard name only metrics that there are. tests/rendered asks Prometheus itself."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
import yaml

from kilocard.core.errors import UsageError
from kilocard.deploy.grafana import dashboard
from kilocard.deploy.target import RenderOptions
from kilocard.deploy.targets import target
from kilocard.metrics import names
from kilocard.spec.parse import parse

CLUSTER = """
gateway: {allow_open: true, tls: {certificate: a, key: b}, limit_store: "redis://redis:6379/0"}
pools:
  a:
    engine: vllm
    model: m/m
    replicas: {min: 1, max: 4}
    scaling: {signal: waiting, up: {above: 12, for: 45s}}
"""
#: of engines, DCGM's exporter and node_exporter
OTHERS = {
    "vllm:num_preemptions_total", "DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_FB_FREE",
    "DCGM_FI_DEV_XID_ERRORS", "node_network_transmit_bytes_total", "node_network_receive_bytes_total",
}  # fmt: skip


def files(name: str, cluster: str = CLUSTER, **more: Any) -> dict[str, str]:
    return target(name).render(parse(yaml.safe_load(cluster)), RenderOptions(**more))


def rules(cluster: str = CLUSTER) -> list[dict[str, Any]]:
    groups = yaml.safe_load(files("prometheus", cluster)["rules/kilocard.yaml"])["groups"]
    return [rule for group in groups for rule in group["rules"]]


def named(query: str) -> set[str]:
    """Names of metrics in a query."""
    found = set(re.findall(r"(?:kilocard_|vllm:|DCGM_|node_)\w+", query))
    return {re.sub(r"_bucket$", "", name) for name in found}


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: str(rule["alert"]))
def test_an_alert_is_about_metrics_that_there_are(rule: dict[str, Any]) -> None:
    known = {metric.name for metric in names.ALL} | OTHERS
    assert named(rule["expr"]) <= known
    assert named(rule["expr"]) or rule["expr"].startswith("up{")
    assert rule["annotations"]["summary"] and rule["annotations"]["description"]


def test_the_dashboard_shows_metrics_that_there_are_and_begins_with_the_first_four() -> None:
    panels = [panel for panel in dashboard()["panels"] if panel["type"] != "row"]
    queries = [query["expr"] for panel in panels for query in panel["targets"]]
    known = {metric.name for metric in names.ALL} | OTHERS
    assert all(named(query) and named(query) <= known for query in queries)
    assert [panel["title"] for panel in panels[:4]] == [
        "GPU utilisation", "GPU memory", "Network", "Requests that wait"
    ]  # fmt: skip
    places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in panels]
    assert len(set(places)) == len(places), "no panel lies on another"
    assert json.loads(files("grafana")["kilocard.json"])["uid"] == "kilocard"


def test_a_pool_is_watched_by_its_own_threshold_or_the_usual_one() -> None:
    (rule,) = [rule for rule in rules() if rule["alert"] == "KilocardPoolQueues"]
    assert rule["expr"].endswith("> 12") and rule["for"] == "45s"
    (rule,) = [
        rule
        for rule in rules("gateway: {allow_open: true}\npools: {a: {engine: vllm, model: m/m}}")
        if rule["alert"] == "KilocardPoolQueues"
    ]
    assert rule["expr"].endswith("> 20") and rule["for"] == "30s"


def test_only_what_a_cluster_has_is_watched() -> None:
    all_of_it = {rule["alert"] for rule in rules()}
    little = {rule["alert"] for rule in rules("gateway: {allow_open: true}\npools: {a: {engine: vllm, model: m/m}}")}
    assert all_of_it - little == {"KilocardLimitsNotShared", "KilocardCertificateEnds", "KilocardControllerStands"}


def test_several_gateways_are_scraped_and_asked_for_engines() -> None:
    text = files("prometheus", admins=("10.0.0.1:8001", "10.0.0.2:8001"))["prometheus.yaml"]
    kilocard, engines = yaml.safe_load(text)["scrape_configs"]
    assert kilocard["static_configs"] == [{"targets": ["10.0.0.1:8001", "10.0.0.2:8001"]}]
    assert [each["url"] for each in engines["http_sd_configs"]] == [
        "http://10.0.0.1:8001/targets",
        "http://10.0.0.2:8001/targets",
    ]


def test_an_admin_port_that_nobody_knows_is_asked_for() -> None:
    with pytest.raises(UsageError, match="--admin host:port"):
        files("prometheus", 'gateway: {admin: "127.0.0.1:0"}\npools: {a: {engine: vllm, model: m/m}}')


def test_prometheus_does_not_fill_in_what_looks_like_a_template_in_a_name() -> None:
    name = "a {{ $labels.x }} {{{b}}"
    cluster = (
        f"gateway: {{allow_open: true}}\nmodels: {{'{name}': {{pool: a}}}}\npools: {{a: {{engine: vllm, model: m/m}}}}"
    )
    (rule,) = [rule for rule in rules(cluster) if rule["alert"] == "KilocardModelWithoutReplica"]
    assert rule["labels"]["model"].replace('{{ "{{" }}', "{{") == name
    assert "{{" not in rule["labels"]["model"].replace('{{ "{{" }}', "")


@pytest.mark.parametrize(("waits", "told"), [("45s", "45s"), ("90.5s", "1m31s"), ("250ms", "1s"), ("36h", "1d12h")])
def test_prometheus_is_told_whole_seconds(waits: str, told: str) -> None:
    (rule,) = [rule for rule in rules(CLUSTER.replace("45s", waits)) if rule["alert"] == "KilocardPoolQueues"]
    assert rule["for"] == told
