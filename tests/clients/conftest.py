"""One real cluster (two llama.cpp replicas on the CPU) with tenants, and the clients that people use.

Nothing here knows how kilocard works: base URL and key are all that a client is told.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "real"))

from real_cluster import Up, up

from kilocard.backends import models

KEY, NARROW_KEY, POOR_KEY = "kc-clients-test", "kc-narrow-test", "kc-poor-test"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.parent == Path(__file__).parent:
            item.add_marker(pytest.mark.slow)
            item.add_marker(pytest.mark.timeout(300))  # the first one's time has the start of the engines in it


def hashed(key: str) -> str:
    return "sha256:" + hashlib.sha256(key.encode()).hexdigest()


@dataclass(frozen=True)
class Door:
    """All that a client knows."""

    root: str  # http://host:port
    key: str = KEY
    model: str = "smol"

    @property
    def openai(self) -> str:
        return self.root + "/v1"


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    models.fetch()
    spec = {
        "gateway": {"store": str(tmp_path_factory.mktemp("store") / "kilocard.db")},
        "models": {"smol": {"pools": {"cpu": 1}}, "secret": {"pools": {"cpu": 1}}},
        "pools": {
            "cpu": {
                "engine": "llamacpp",
                "args": {"parallel": 4, "ctx-size": 16384, "threads": 1},
                "replicas": 2,
            }
        },
        "tenants": {
            "wide": {"keys": [hashed(KEY)]},
            "narrow": {"keys": [hashed(NARROW_KEY)], "models": ["smol"]},
            "poor": {"keys": [hashed(POOR_KEY)], "limits": {"requests_per_minute": 1}},
        },
    }
    with up(spec, tmp_path_factory.mktemp("clients")) as cluster:
        cluster.wait_ready(2)
        yield cluster


@pytest.fixture
def door(cluster: Up) -> Door:
    return Door(f"http://127.0.0.1:{cluster.port}")
