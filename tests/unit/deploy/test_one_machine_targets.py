"""Compose and systemd: what a rendered file says. tests/rendered asks the real programs."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from kilocard.core.errors import UsageError
from kilocard.deploy.target import RenderOptions
from kilocard.deploy.targets import target
from kilocard.spec.parse import parse


def files(name: str, cluster: str) -> dict[str, str]:
    return target(name).render(parse(yaml.safe_load(f"gateway: {{allow_open: true}}\n{cluster}")), RenderOptions())


def services(cluster: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(files("compose", cluster)["compose.yaml"])["services"]
    return found


def pool(keys: str) -> str:
    return f"pools: {{a: {{engine: vllm, version: 0.32.0, model: m/m, {keys}}}}}"


def gpus(service: dict[str, Any]) -> list[str]:
    (device,) = service["deploy"]["resources"]["reservations"]["devices"]
    ids: list[str] = device["device_ids"]
    return ids


def test_each_replica_has_gpus_of_its_own() -> None:
    made = services(pool("gpus: {tensor: 2}, replicas: 2"))
    assert gpus(made["a-0"]) == ["0", "1"] and gpus(made["a-1"]) == ["2", "3"]


def test_an_engine_has_as_long_to_end_as_its_requests() -> None:
    assert services(pool("drain: 10m"))["a-0"]["stop_grace_period"] == "620s"


def test_nobody_but_the_gateway_reaches_an_engine_and_only_this_machine_the_admin_address() -> None:
    made = services(pool(""))
    assert "ports" not in made["a-0"]
    assert made["gateway"]["ports"] == ["8000:8000", "127.0.0.1:8001:8001"]


def test_a_dollar_is_a_dollar_and_a_secret_is_the_shells() -> None:
    made = services(pool("env: {GREETING: 'costs $5', HF_TOKEN: very-secret, MY_API_KEY: very-secret}"))
    assert made["a-0"]["environment"]["GREETING"] == "costs $$5"
    assert made["a-0"]["environment"]["HF_TOKEN"] is None and made["a-0"]["environment"]["MY_API_KEY"] is None
    assert "very-secret" not in "".join(files("compose", pool("env: {MY_API_KEY: very-secret}")).values())


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ("gpus: {tensor: 8, pipeline: 2}", "needs 16 GPUs and a machine has 8"),
        ("model: /data/m", "write model: /models/"),
    ],
)
def test_what_compose_cannot_do_is_said(keys: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        services(pool(keys).replace("model: m/m, model", "model"))


def test_the_unit_waits_for_the_gateways_drain_and_then_for_the_slowest_engines() -> None:
    unit = files("systemd", pool("drain: 10m"))["kilocard.service"]
    assert "TimeoutStopSec=750\n" in unit, "120 s, 600 s, and a little"
    assert "ExecStart=/usr/bin/env kilocard up /etc/kilocard/cluster.yaml\n" in unit
    assert "KillMode=mixed\n" in unit


def test_a_unit_of_a_gateway_alone_starts_no_engines() -> None:
    unit = files("systemd", 'pools: {a: {engine: vllm, endpoints: ["http://10.0.0.1:8000"]}}')["kilocard.service"]
    assert "kilocard gateway /etc/kilocard/cluster.yaml\n" in unit and "OOMPolicy" not in unit
    assert "TimeoutStopSec=150\n" in unit
