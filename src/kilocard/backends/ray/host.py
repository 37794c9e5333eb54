"""The actor that owns one replica: it runs the replica's life beside the engine, whoever controls it from afar."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from kilocard.backends import models
from kilocard.backends.launching import engine_argv
from kilocard.backends.life_events import Drain, Idle, Stop
from kilocard.backends.ports import Ports
from kilocard.backends.ray import node
from kilocard.backends.ray.group import Leader, part_of
from kilocard.backends.ray.plan import HostPlan, HostReport, standing
from kilocard.backends.readiness import Answer
from kilocard.backends.runner import STATUS_LINES, Plan, Runner
from kilocard.core.replica import Change
from kilocard.engines.base import Launch
from kilocard.net.client import fetch

#: seconds that `watch` waits for something new
WATCH_SECONDS = 10.0
#: announcements that are kept for a controller that is away; what counts then is where they lead (plan.standing)
KEPT_NEWS = 64


async def _get(url: str, limit: float) -> Answer:
    return await fetch(url, timeout=limit, max_bytes=4 * 1024 * 1024)


class ReplicaHost:
    """Made as a Ray actor. `begin` starts the replica; `watch` tells of it; it stays until it is killed.

    `parts` are the actors of the replica's other processes, where it has several.
    """

    def __init__(self, plan: HostPlan, parts: tuple[Any, ...] = ()) -> None:
        self._plan = plan
        self._host = node.address()
        self._gpus = node.gpu_ids()
        self._news: deque[tuple[int, Change]] = deque(maxlen=KEPT_NEWS)
        self._number = 0
        self._changed = asyncio.Event()
        self._runner: Runner | None = None
        self._life: asyncio.Task[None] | None = None
        self._ports = Ports(self._host)
        self._leader = Leader(self._host, parts) if parts else None

    async def begin(self) -> None:
        """Safe to repeat."""
        if self._runner is not None:
            return
        plan = self._plan
        pool = plan.pool
        if pool.model is None and plan.engine.capabilities.default_model:
            file = await asyncio.get_running_loop().run_in_executor(None, models.fetch)
            pool = replace(pool, model=str(file))
        indices = tuple(gpu for gpu in self._gpus if isinstance(gpu, int))
        log_dir = node.log_dir(plan.namespace)
        made = Plan(plan.replica, pool, plan.engine, plan.served_names, indices, log_dir, self._command)
        if self._leader is not None:
            made = replace(made, start=self._leader.start)
        self._runner = Runner(made, self._ports, self._announce, _get, time.monotonic, self._mark)
        self._life = asyncio.get_running_loop().create_task(self._runner.run())
        self._life.add_done_callback(lambda _: self._mark())

    async def plan(self) -> HostPlan:
        """What it was started with: the cluster file may say something else by now."""
        return self._plan

    async def watch(self, seen: int) -> HostReport:
        """As soon as anything is new since `seen` (a HostReport's number; -1: nothing was seen), or after a while."""
        if seen >= self._number:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), WATCH_SECONDS)
        assert self._runner is not None, "begin comes first"
        status = self._runner.status(STATUS_LINES)
        whole = standing(change for _, change in self._news)
        news = whole if seen < 0 else tuple(change for number, change in self._news if number > seen)
        return HostReport(status, time.monotonic() - status.since, news, self._number, self._host)

    async def end(self, reason: str, drain: bool) -> None:
        """Drain or stop the replica. Returns at once; `watch` tells how it goes."""
        assert self._runner is not None, "begin comes first"
        now = time.monotonic()
        self._runner.tell(Drain(now, reason) if drain else Stop(now, reason))

    async def idle(self) -> None:
        """A draining replica's last request ended."""
        if self._runner is not None:
            self._runner.tell(Idle(time.monotonic()))

    async def log(self, lines: int) -> tuple[str, ...]:
        """The last lines of the engine's log, from this node's disk."""
        return () if self._runner is None else self._runner.log.tail(lines)

    def _command(self, launch: Launch, gpus: tuple[int, ...]) -> tuple[list[str], Mapping[str, str]]:
        group = self._plan.engine.capabilities.group
        if self._leader is not None and group is not None:
            launch = part_of(launch, group, 0, self._plan.parts, self._host, self._host)
        env = node.process_env(self._plan, launch, self._gpus, self._host)
        return engine_argv(launch, env), env

    def _announce(self, change: Change) -> None:
        self._news.append((self._number + 1, change))
        self._mark()

    def _mark(self) -> None:
        self._number += 1
        self._changed.set()
        self._changed = asyncio.Event()
