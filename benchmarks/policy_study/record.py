"""results.json: what has been played so far. A run is played once, as long as the study's settings stay the same."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.policy_study import cases, play
from kilocard.sim.scenario import PoolModel

RESULTS = Path(__file__).with_name("results.json")


def settings(pools: Mapping[str, PoolModel]) -> dict[str, Any]:
    """What results depend on besides the code and the case."""
    return {
        "replicas": cases.REPLICAS,
        "warm_s": cases.WARM_S,
        "counted_s": cases.COUNTED_S,
        "slower": cases.SLOWER,
        "pressed": [play.PRESSED_S, play.PRESSED],
        "profiles": {name: pool.profile.to_mapping() for name, pool in pools.items()},
    }


@dataclass
class Record:
    """`runs`: by the case's key, what the case is and its numbers. `capacities`: requests/s of a replica."""

    settings: dict[str, Any]
    capacities: dict[str, float] = field(default_factory=dict)
    runs: dict[str, dict[str, Any]] = field(default_factory=dict)
    #: processor time of all runs
    cpu_s: float = 0.0

    @classmethod
    def read(cls, path: Path) -> Record | None:
        if not path.exists():
            return None
        return cls(**json.loads(path.read_text()))

    def write(self, path: Path) -> None:
        """One run a line, so that a difference can be read."""
        runs = ",\n".join(f"{json.dumps(key)}: {json.dumps(run)}" for key, run in self.runs.items())
        text = (
            f'{{"settings": {json.dumps(self.settings)},\n"cpu_s": {round(self.cpu_s, 1)},\n'
            f'"capacities": {json.dumps(self.capacities)},\n"runs": {{\n{runs}\n}}}}\n'
        )
        fresh = path.with_suffix(".new")
        fresh.write_text(text)
        fresh.replace(path)
