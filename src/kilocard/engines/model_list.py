"""What an engine's /v1/models says: some answer their health page before the model or its adapters can serve."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from kilocard.engines.base import Engine
from kilocard.spec.model import PoolSpec

MODELS_PATH = "/v1/models"


def wanted_models(engine: Engine, pool: PoolSpec, public_names: Iterable[str]) -> set[str]:
    """Names that must be in the list of a replica that can serve; none where the engine keeps no such list."""
    if not engine.capabilities.lists_models:
        return set()
    return {engine.upstream_model(pool, name) for name in public_names}


def models_listed(body: bytes) -> set[str] | None:
    """Names (and aliases) in an OpenAI model list; None where it is none. "name:latest" counts as "name" too."""
    try:
        page: Any = json.loads(body)
        names = set()
        for entry in page["data"]:
            names.add(str(entry["id"]))
            names.update(str(alias) for alias in entry.get("aliases") or ())
    except (ValueError, TypeError, KeyError, AttributeError):
        return None
    return names | {name.removesuffix(":latest") for name in names}


def missing_models(wanted: Iterable[str], status: int, body: bytes) -> str:
    """Which of the `wanted` the answer does not list, in words; "" where all are there, or the answer is no list."""
    listed = models_listed(body) if status == 200 else None
    missing = set() if listed is None else set(wanted) - listed
    if not missing:
        return ""
    have = ", ".join(sorted(listed or ())) or "nothing"
    return f"{MODELS_PATH} lists {have}, not {', '.join(sorted(missing))}"
