"""What every backend must do (tests/contract), on Ray. GPUs are the difference: here a replica waits for one."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest

from fake_engine import FakeEngine
from kilocard.backends.base import Backend, Report
from kilocard.spec.model import ClusterSpec

_FILE = Path(__file__).parent.parent / "contract" / "test_backend_contract.py"
_SPEC = importlib.util.spec_from_file_location("backend_contract", _FILE)
assert _SPEC is not None and _SPEC.loader is not None
contract = importlib.util.module_from_spec(_SPEC)
sys.modules[_SPEC.name] = contract  # dataclasses look their module up
_SPEC.loader.exec_module(contract)

STORIES = [
    story
    for name, story in vars(contract).items()
    if name.startswith("test_") and name != "test_two_replicas_never_share_a_gpu"
]


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
def test_contract(nodes: Any, story: Any) -> None:
    from kilocard.backends.ray.backend import RayBackend

    def make(spec: ClusterSpec, report: Report) -> Backend:
        return RayBackend(spec, report, lambda name: FakeEngine(), address=nodes.address)

    room = nodes.add(cpus=4)
    try:
        story(make)
    finally:
        nodes.remove(room)
