"""nginx, HAProxy and Envoy: what a rendered file says, and what can't be rendered. tests/rendered runs the programs."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from kilocard.core.errors import UsageError
from kilocard.deploy.target import RenderOptions
from kilocard.deploy.targets import target
from kilocard.spec.parse import parse

PROXIES = ("nginx", "haproxy", "envoy")
TWO_POOLS = """
models: {m: {pools: {a: 90, b: 10}}}
pools:
  a: {engine: vllm, endpoints: ["http://10.0.0.1:8000", "http://10.0.0.2:8000"], max_in_flight: 32}
  b: {engine: vllm, endpoints: ["http://10.0.0.3:8000"]}
"""
STARTED = "pools: {a: {engine: vllm, model: m/m}}"


def text(name: str, cluster: str, *, direct: bool = False, **more: Any) -> str:
    files = target(name).render(parse(yaml.safe_load(cluster)), RenderOptions(direct=direct, **more))
    return "\n".join(files.values())


@pytest.mark.parametrize("name", PROXIES)
def test_without_a_word_it_stands_before_the_gateway(name: str) -> None:
    said = text(name, STARTED)
    assert "127.0.0.1" in said and "8000" in said and "8080" in said
    assert "1830s" in said, "the gateway's own total of 30 minutes, and a little: its error says what happened"


@pytest.mark.parametrize("name", PROXIES)
def test_several_gateways(name: str) -> None:
    said = text(name, STARTED, gateways=("10.1.0.1:8000", "10.1.0.2:8000"))
    assert "10.1.0.1" in said and "10.1.0.2" in said


def test_direct_servers_have_their_pools_weights_and_bounds() -> None:
    said = text("nginx", TWO_POOLS, direct=True)
    assert "server 10.0.0.1:8000 max_fails=2 fail_timeout=10s max_conns=32;" in said
    assert "server 10.0.0.3:8000 weight=22 max_fails=2 fail_timeout=10s;" in said, "45, 45 and 10 of 100"
    assert "keepalive_timeout 3s;" in said, "below the 5 s of engines"
    said = text("haproxy", TWO_POOLS, direct=True)
    assert "  server b-0 10.0.0.3:8000 weight 22\n" in said and "maxconn 32" in said
    assert "option httpchk GET /health\n" in said
    document = yaml.safe_load(text("envoy", TWO_POOLS, direct=True))
    (cluster,) = document["static_resources"]["clusters"]
    places = cluster["load_assignment"]["endpoints"][0]["lb_endpoints"]
    assert [place.get("load_balancing_weight") for place in places] == [None, None, 22]
    assert cluster["type"] == "STATIC"


def test_replicas_behind_a_name() -> None:
    cluster = 'pools: {a: {engine: vllm, dns: "replicas.example:8000"}}'
    assert "server-template a- 64 replicas.example:8000 resolvers system" in text("haproxy", cluster, direct=True)
    document = yaml.safe_load(text("envoy", cluster, direct=True))
    assert document["static_resources"]["clusters"][0]["type"] == "STRICT_DNS"
    assert "server replicas.example:8000 max_fails" in text("nginx", cluster, direct=True)


def test_engines_with_different_health_pages_are_only_asked_whether_they_listen() -> None:
    cluster = """
    models: {m: {pools: {a: 1, b: 1}}}
    pools:
      a: {engine: vllm, endpoints: ["http://10.0.0.1:8000"]}
      b: {engine: ollama, endpoints: ["http://10.0.0.2:11434"]}
    """
    assert "httpchk" not in text("haproxy", cluster, direct=True)
    assert "tcp_health_check" in text("envoy", cluster, direct=True)


@pytest.mark.parametrize("name", PROXIES)
@pytest.mark.parametrize(
    ("cluster", "options", "message"),
    [
        (STARTED, {"direct": True}, "known only when they run"),
        (
            "models: {m: {pools: {a: 1}}, n: {pools: {a: 1}}}\npools: {a: {engine: vllm, endpoints: ['http://a:1']}}",
            {"direct": True},
            "there are 2 models",
        ),
        (
            "pools: {a: {engine: vllm, endpoints: ['http://a:1'], tenants: [t]}}\n"
            f"tenants: {{t: {{keys: ['sha256:{'0' * 64}']}}}}",
            {"direct": True},
            "alone, and this proxy knows no tenants",
        ),
        (f"gateway: {{tls: {{certificate: a, key: b}}}}\n{STARTED}", {}, "ends TLS itself"),
        (f'gateway: {{listen: "127.0.0.1:0"}}\n{STARTED}', {}, "--gateway host:port"),
        (STARTED, {"listen": "nowhere"}, "--listen"),
        (STARTED, {"gateways": ("x:y",)}, "--gateway"),
    ],
)
def test_what_a_proxy_cannot_do_is_said(name: str, cluster: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        text(name, cluster, **options)


@pytest.mark.parametrize("name", ["nginx", "haproxy", "envoy"])
def test_a_head_that_no_proxy_takes_is_refused(name: str) -> None:
    spec = parse(
        yaml.safe_load("gateway: {limits: {header: 16MiB}}\npools: {m: {engine: external, endpoints: ['http://h:1']}}")
    )
    with pytest.raises(UsageError, match=r"limits\.header is 16,777,216 bytes"):
        target(name).render(spec, RenderOptions())


def test_haproxy_waits_for_no_longer_than_it_can_count() -> None:
    spec = parse(yaml.safe_load("gateway: {timeouts: {total: 366d}}\npools: {m: {engine: external, dns: 'h:1'}}"))
    text = target("haproxy").render(spec, RenderOptions(direct=True))["haproxy.cfg"]
    assert "timeout server 2073600s" in text and "timeout queue 2073600s" in text
    assert "init-addr last,libc,none" in text, "it starts, and looks again, where the name has no address yet"
