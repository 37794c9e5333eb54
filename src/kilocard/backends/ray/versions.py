"""Asks nodes for their versions, once each, before anything starts on them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping

from kilocard.backends.ray.link import Link, Node
from kilocard.backends.ray.same_versions import NodeFacts, check
from kilocard.core.errors import BackendError
from kilocard.engines.base import Engine, Placement
from kilocard.spec.model import PoolSpec


class Versions:
    """`pools` and `engine_of` give the pools that run on the cluster, and the engine of each."""

    def __init__(
        self, link: Link, pools: Callable[[], Mapping[str, PoolSpec]], engine_of: Callable[[PoolSpec], Engine]
    ) -> None:
        self._link = link
        self._pools = pools
        self._engine_of = engine_of
        self._known: dict[str, NodeFacts] = {}
        self._one_at_a_time = asyncio.Lock()

    async def check(self, nodes: Iterable[str] | None = None) -> None:
        """That these nodes (ids; None: all) are like all others that were asked. Raises BackendError."""
        async with self._one_at_a_time:
            alive = {node.id: node for node in await self._link.nodes()}
            self._known = {name: facts for name, facts in self._known.items() if name in alive}
            wanted = alive.keys() if nodes is None else set(nodes)
            if gone := wanted - alive.keys():
                raise BackendError(f"{len(gone)} of its nodes went away before it started")
            new = [alive[name] for name in sorted(wanted - self._known.keys())]
            for node, facts in zip(new, await asyncio.gather(*map(self._ask, new)), strict=True):
                self._known[node.id] = facts
            try:
                check(list(self._known.values()))
            except BackendError:
                for node in new:  # they are asked again: somebody may have repaired them
                    del self._known[node.id]
                raise

    async def _ask(self, node: Node) -> NodeFacts:
        programs = {}
        for name, pool in self._pools().items():
            engine = self._engine_of(pool)
            if node.room.may_host(pool, engine):
                programs[name] = _program(engine, pool)
        return await self._link.facts(node, programs)


def _program(engine: Engine, pool: PoolSpec) -> tuple[str, str | None]:
    launch = engine.launch(pool, Placement("127.0.0.1", 1), (pool.name,))
    return launch.argv[0], engine.capabilities.distribution
