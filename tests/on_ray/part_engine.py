"""A fake engine whose replicas may have several parts. In a file of its own, since actors import it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from fake_engine import CAPABILITIES, FakeEngine
from kilocard.engines.base import Capabilities, Launch, Placement
from kilocard.spec.model import PoolSpec

MULTI_NODE = replace(CAPABILITIES, multi_node=True)
VERSIONED = replace(CAPABILITIES, distribution="fakeengine")


@dataclass
class PartEngine(FakeEngine):
    """Each part writes the files that its flags name under a name with its rank."""

    capabilities: Capabilities = MULTI_NODE

    def launch(self, pool: PoolSpec, place: Placement, served_names: tuple[str, ...]) -> Launch:
        rank = 0 if place.part is None else place.part.rank
        args = {key: f"{value}-{rank}" if key in ("family", "env") else value for key, value in pool.args.items()}
        return super().launch(replace(pool, args=args), place, served_names)


@dataclass
class VersionedEngine(FakeEngine):
    """A program that is looked for on the node's PATH and has the version of its Python distribution."""

    program: tuple[str, ...] = ("fake-engine",)
    capabilities: Capabilities = VERSIONED
