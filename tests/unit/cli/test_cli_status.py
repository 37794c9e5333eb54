"""`kilocard status`: what it takes for a gateway, and when it says that nobody can serve."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from kilocard.cli.status import read_state, status
from kilocard.core.errors import KilocardError


def answers(monkeypatch: pytest.MonkeyPatch, body: bytes) -> None:
    async def fetch(url: str, **_: object) -> SimpleNamespace:
        return SimpleNamespace(status=200, body=body)

    monkeypatch.setattr("kilocard.cli.status.fetch", fetch)


def fleet(*states: str) -> bytes:
    return json.dumps(
        {
            "gateway": {},
            "models": [{"id": "m", "pools": {"p": 1}}],
            "pools": [{"id": "p"}],
            "replicas": [{"pool": "p", "state": state} for state in states],
        }
    ).encode()


@pytest.mark.parametrize("body", [b"", b"<html>", b"null", b"[1]", b'{"object":"list","data":[]}', b'{"gateway":{}}'])
def test_another_server_is_said_to_be_none(monkeypatch: pytest.MonkeyPatch, body: bytes) -> None:
    answers(monkeypatch, body)
    with pytest.raises(KilocardError, match=r"127\.0\.0\.1:9000/state is not a kilocard gateway's.*gateway\.admin"):
        read_state("127.0.0.1:9000")


@pytest.mark.parametrize("state", ["ready", "slow_start", "full", "overheated"])
def test_a_busy_or_new_replica_serves(monkeypatch: pytest.MonkeyPatch, state: str) -> None:
    answers(monkeypatch, fleet("ejected", state))
    status(everyone=False, pool=None, json=True)


@pytest.mark.parametrize("state", ["ejected", "draining", "probing", "resting", "starting"])
def test_a_model_without_a_replica_that_can_serve_is_named(monkeypatch: pytest.MonkeyPatch, state: str) -> None:
    answers(monkeypatch, fleet(state))
    with pytest.raises(KilocardError, match="no replica can serve: m"):
        status(everyone=False, pool=None, json=True)
