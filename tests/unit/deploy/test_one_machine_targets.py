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
    assert made["gateway"]["ports"] == ["127.0.0.1:8000:8000", "127.0.0.1:8001:8001"]


@pytest.mark.parametrize(
    ("gateway", "ports"),
    [
        ("listen: 0.0.0.0:80", ["80:8000", "127.0.0.1:8001:8001"]),
        ("listen: '[::]:8001', admin: 127.0.0.1:9001", ["8001:8000", "127.0.0.1:9001:8001"]),
        ("listen: 10.0.0.5:8000, admin: 0.0.0.0:9001", ["10.0.0.5:8000:8000", "127.0.0.1:9001:8001"]),
        ("listen: '[::1]:8000'", ["[::1]:8000:8000", "127.0.0.1:8001:8001"]),
        ("listen: localhost:8000", ["127.0.0.1:8000:8000", "127.0.0.1:8001:8001"]),
        ("listen: gpu1.example.com:8000", ["8000:8000", "127.0.0.1:8001:8001"]),
    ],
)
def test_the_gateway_is_published_where_the_cluster_file_has_it_listen(gateway: str, ports: list[str]) -> None:
    spec = parse(yaml.safe_load(f"gateway: {{allow_open: true, {gateway}}}\n{pool('')}"))
    made = yaml.safe_load(target("compose").render(spec, RenderOptions())["compose.yaml"])
    assert made["services"]["gateway"]["ports"] == ports


def test_pools_whose_names_differ_only_in_signs_are_services_of_their_own() -> None:
    names = ["qwen.7b", "qwen-7b", "Qwen_7B", "q" * 100]
    cluster = "pools:\n" + "".join(f"  {name}: {{engine: vllm, version: 0.32.0, model: m/m}}\n" for name in names)
    made = services(cluster)
    assert len(made) == 1 + len(names) and "qwen-7b-0" in made
    assert all(len(name) <= 63 for name in made), "host names are no longer"
    asked = yaml.safe_load(files("compose", cluster)["cluster.yaml"])["pools"]
    assert {f"http://{name}:8000" for name in made if name != "gateway"} == {
        endpoint for one in asked.values() for endpoint in one["endpoints"]
    }


def test_certificates_and_keys_are_folders_beside_the_file() -> None:
    gateway = "gateway: {allow_open: true, tls: {certificate: a, key: b}, keys_file: k.yaml}\ntenants: {t: {}}"
    spec = parse(yaml.safe_load(f"{gateway}\n{pool('')}"))
    made = yaml.safe_load(target("compose").render(spec, RenderOptions())["compose.yaml"])["services"]["gateway"]
    assert made["volumes"][1:] == ["./tls:/etc/kilocard-tls:ro", "./keys:/etc/kilocard-keys:ro"]


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
        ("model: ./m", "is a file or folder of this machine"),
        ("model: ~/m", "write an absolute path, as /models/m"),
        ("model: a, engine: emulated, profile: ./mine.yaml", "profile ./mine.yaml is a file of this machine"),
        ("model: m.gguf, engine: llamacpp, image: x", "model m.gguf is a file or folder of this machine"),
        ("engine: external, service: team/b", "can't be looked up from outside of Kubernetes"),
    ],
)
def test_what_compose_cannot_do_is_said(keys: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        services(written(keys))


def written(keys: str) -> str:
    """A pool `a` where keys come twice: the last one counts."""
    given = {"engine": "vllm", "version": "0.32.0", "model": "m/m"} | yaml.safe_load(f"{{{keys}}}")
    if given["engine"] == "external":
        del given["model"], given["version"]
    return yaml.safe_dump({"pools": {"a": given}})


def test_the_unit_waits_for_the_gateways_drain_and_then_for_the_slowest_engines() -> None:
    unit = files("systemd", pool("drain: 10m"))["kilocard.service"]
    assert "TimeoutStopSec=750\n" in unit, "120 s, 600 s, and a little"
    assert "ExecStart=/usr/bin/env kilocard up /etc/kilocard/cluster.yaml\n" in unit
    assert "KillMode=mixed\n" in unit


def test_a_unit_of_a_gateway_alone_starts_no_engines() -> None:
    unit = files("systemd", 'pools: {a: {engine: vllm, endpoints: ["http://10.0.0.1:8000"]}}')["kilocard.service"]
    assert "kilocard gateway /etc/kilocard/cluster.yaml\n" in unit and "OOMPolicy" not in unit
    assert "TimeoutStopSec=150\n" in unit


def unit(gateway: str) -> list[str]:
    spec = parse(yaml.safe_load(f"gateway: {{allow_open: true, {gateway}}}\n{pool('')}"))
    return target("systemd").render(spec, RenderOptions())["kilocard.service"].splitlines()


def test_a_unit_may_take_a_low_port_where_the_gateway_has_one() -> None:
    assert "AmbientCapabilities=CAP_NET_BIND_SERVICE" in unit("listen: 0.0.0.0:443")
    assert not [line for line in unit("listen: 0.0.0.0:8443") if "CAP_NET" in line]


def test_a_unit_may_write_where_the_gateway_does() -> None:
    lines = unit("access_log: /var/log/kilocard/access.log, record: '/srv/a %b/log', store: /var/lib/kilocard/k.db")
    assert "LogsDirectory=kilocard" in lines and 'ReadWritePaths="/srv/a %%b"' in lines
    assert len([line for line in lines if line.startswith(("LogsDirectory", "ReadWritePaths"))]) == 2
    assert not [line for line in unit("access_log: '-'") if line.startswith(("LogsDirectory", "ReadWritePaths", "#-"))]


def test_a_unit_gets_no_line_from_a_path() -> None:
    lines = unit('access_log: "/srv/a\\nExecStartPre=/bin/evil/x"')
    assert not [line for line in lines if line.startswith("ExecStartPre")]


def test_a_unit_sees_homes_only_where_the_cluster_file_names_one() -> None:
    assert "ProtectHome=yes" in unit("shutdown_delay: 0s")
    assert "ProtectHome=read-only" in unit("tls: {certificate: /home/me/c.pem, key: /home/me/k.pem}")
