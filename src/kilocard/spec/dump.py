"""ClusterSpec → plain values, for people who want to see what runs."""

from __future__ import annotations

from typing import Any

from kilocard.spec.model import ClusterSpec
from kilocard.spec.table import cluster_section


def dump(spec: ClusterSpec) -> dict[str, Any]:
    """What a file would say to mean `spec`, defaults left out: `parse(dump(spec)) == spec`.

    Made of dicts, lists, text, numbers and booleans, so that YAML and JSON can write it.
    """
    # Engines that only the caller knows need no table of their own: names are written as they are.
    result: dict[str, Any] = cluster_section().dump(spec)  # type: ignore[assignment]  # a section dumps to a dict
    return result
