"""What differs between two cluster files, and what a running gateway can take over."""

from __future__ import annotations

from dataclasses import replace

from kilocard.spec.changes import adoptable, differences
from kilocard.spec.model import ClusterSpec, GatewaySpec, Limits, ModelSpec, PoolSpec, TenantSpec
from kilocard.spec.services import TlsSpec

SPEC = ClusterSpec(
    models={"m": ModelSpec("m", {"p": 1})},
    pools={"p": PoolSpec("p", "vllm", endpoints=("http://h:1",)), "a.b": PoolSpec("a.b", "vllm")},
    tenants={"t": TenantSpec("t", keys=("sha256:00",))},
)


def test_the_same_is_no_difference() -> None:
    assert list(differences(SPEC, replace(SPEC))) == []


def test_paths_are_named_as_the_parser_names_them_and_values_are_not() -> None:
    new = replace(
        SPEC,
        gateway=GatewaySpec(limits=Limits(body=1)),
        models={"m": ModelSpec("m", {"p": 2}, slow_start=0.0), "n": ModelSpec("n", {"p": 1})},
        pools={"p": replace(SPEC.pools["p"], endpoints=("http://user:secret@h:2",))},
        tenants={"t": TenantSpec("t", keys=("sha256:ff",))},
    )
    assert list(differences(SPEC, new)) == [
        "gateway.limits.body",
        "models.m.pools.p",
        "models.m.slow_start",
        "models.n added",
        "pools.p.endpoints",
        'pools."a.b" removed',
        "tenants.t.keys",
    ]


def test_what_a_process_is_built_around_stays_and_is_named() -> None:
    old = replace(SPEC, gateway=GatewaySpec(listen="127.0.0.1:1"))
    new = replace(SPEC, gateway=GatewaySpec(listen="127.0.0.1:2", store="/x", drain=7.0))
    kept, restart = adoptable(old, new)
    assert restart == ["gateway.listen", "gateway.store"]
    assert kept.gateway == replace(old.gateway, drain=7.0)


def test_tls_can_change_its_files_but_not_come_and_go() -> None:
    plain, one, other = (
        replace(SPEC, gateway=GatewaySpec(tls=tls)) for tls in (None, TlsSpec("a", "b"), TlsSpec("c", "d"))
    )
    assert adoptable(one, other) == (other, [])
    assert adoptable(one, plain) == (one, ["gateway.tls"])
    assert adoptable(plain, one) == (plain, ["gateway.tls"])
