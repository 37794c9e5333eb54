"""What `kilocard up` says while it runs."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from rich.console import Console

from kilocard.backends.base import ReplicaState, ReplicaStatus
from kilocard.cli import up
from kilocard.spec.model import ClusterSpec, GatewaySpec, ModelSpec, TenantSpec


@pytest.mark.parametrize("reason", ["cannot open [/path/x] in [red]this", "[rank0]: error", "ends with \\"])
def test_an_engines_own_words_are_printed_as_they_are(reason: str) -> None:
    """An unbalanced tag would else end the whole cluster."""
    console = Console(width=200)
    with console.capture() as capture:
        console.print(up._news(ReplicaStatus("p-0", "p", ReplicaState.RESTARTING, reason=reason)))
    assert capture.get().strip() == f"p-0 restarting: {reason}"


def test_the_address_of_an_ipv6_gateway_and_a_bracketed_model_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    spec = ClusterSpec(
        gateway=GatewaySpec(listen="[fd00::1]:8000"), models={"[m]": ModelSpec("[m]", {"p": 1})}, pools={}
    )
    up._welcome(cast(Any, SimpleNamespace(spec=spec, gateway=SimpleNamespace(port=8000, admin_port=8001))))
    said = capsys.readouterr().err
    assert "http://[fd00::1]:8000/v1 (OpenAI-compatible), models: [m]" in said
    assert '"model": "[m]"' in said


@pytest.mark.parametrize("tenants", [{}, {"a": TenantSpec("a")}])
def test_the_command_to_copy_has_a_place_for_the_key_where_one_is_needed(
    tenants: dict[str, TenantSpec], capsys: pytest.CaptureFixture[str]
) -> None:
    spec = ClusterSpec(models={"m": ModelSpec("m", {"p": 1})}, pools={}, tenants=tenants)
    up._welcome(cast(Any, SimpleNamespace(spec=spec, gateway=SimpleNamespace(port=8000, admin_port=8001))))
    assert ("-H 'authorization: Bearer KEY' \\\n" in capsys.readouterr().err) == bool(tenants)
