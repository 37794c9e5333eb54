"""A gateway without keys stays on this machine, unless it is told otherwise."""

from __future__ import annotations

import pytest

from kilocard.core.errors import UsageError
from kilocard.spec.model import ClusterSpec, GatewaySpec, TenantSpec
from kilocard.spec.services import OidcSpec
from kilocard.tenancy.openness import exposures, is_loopback, refuse_open

HERE = ["127.0.0.1", "127.255.3.4", "::1", "0:0:0:0:0:0:0:1", "::ffff:127.0.0.1", "localhost", "LOCALHOST"]
ELSEWHERE = ["0.0.0.0", "::", "10.0.0.1", "128.0.0.1", "::2", "::ffff:10.0.0.1", "localhost.example.com", "gpu-1", ""]


@pytest.mark.parametrize("host", HERE)
def test_addresses_of_this_machine(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize("host", ELSEWHERE)
def test_addresses_that_others_reach(host: str) -> None:
    assert not is_loopback(host)


@pytest.mark.parametrize("listen", ["127.0.0.1:8000", "127.9.9.9:0", "[::1]:8000", "localhost:8000"])
def test_open_is_fine_on_this_machine(listen: str) -> None:
    refuse_open(ClusterSpec(gateway=GatewaySpec(listen=listen)))


@pytest.mark.parametrize("listen", ["0.0.0.0:8000", "[::]:8000", "192.168.1.5:8000", "gpu-1:8000"])
def test_open_is_refused_elsewhere_and_the_error_says_what_to_do(listen: str) -> None:
    with pytest.raises(UsageError) as caught:
        refuse_open(ClusterSpec(gateway=GatewaySpec(listen=listen)))
    assert caught.value.exit_code == 2
    for word in (listen, "tenants", "gateway.allow_open: true"):
        assert word in caught.value.message


def test_tenants_or_a_clear_word_let_it_listen() -> None:
    refuse_open(ClusterSpec(gateway=GatewaySpec(listen="0.0.0.0:80"), tenants={"a": TenantSpec("a")}))
    refuse_open(ClusterSpec(gateway=GatewaySpec(listen="0.0.0.0:80", allow_open=True)))


def test_what_is_exposed_is_said() -> None:
    assert exposures(ClusterSpec()) == []
    open_on_purpose = ClusterSpec(gateway=GatewaySpec(listen="0.0.0.0:80", allow_open=True))
    assert [line[:34] for line in exposures(open_on_purpose)] == ["The gateway listens on 0.0.0.0 and"]
    admin = ClusterSpec(gateway=GatewaySpec(admin="0.0.0.0:81"), tenants={"a": TenantSpec("a")})
    assert [line[:40] for line in exposures(admin)] == ["The admin address listens on 0.0.0.0 and"]


@pytest.mark.parametrize(
    ("issuer", "jwks", "said"),
    [
        ("https://id.example.com", None, False),
        ("http://127.0.0.1:8080/realm", None, False),
        ("http://[::1]:8080/realm", None, False),
        ("http://localhost", None, False),
        ("http://[::2]", None, True),
        ("http://10.0.0.1:80", None, True),
        ("http://id.example.com", None, True),
        ("https://id.example.com", "http://id.example.com/keys", True),
    ],
)
def test_keys_of_an_issuer_without_tls_are_said(issuer: str, jwks: str | None, said: bool) -> None:
    oidc = OidcSpec(issuer=issuer, audience=("k",), jwks=jwks)
    spec = ClusterSpec(gateway=GatewaySpec(oidc=oidc), tenants={"a": TenantSpec("a")})
    assert [("without TLS" in line) for line in exposures(spec)] == [True] * said
