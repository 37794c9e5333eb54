"""Engines as processes on this machine: one per replica, each with its own port, log and GPUs."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from kilocard.backends import models
from kilocard.backends.as_started import as_started
from kilocard.backends.base import ACTIVE, ReplicaStatus, Report
from kilocard.backends.gpus import GpuLedger, Inventory, discover
from kilocard.backends.launching import engine_argv, engine_env
from kilocard.backends.life_events import Drain, Idle, Stop
from kilocard.backends.ports import Ports
from kilocard.backends.readiness import Answer, Get
from kilocard.backends.roster import Roster, Seat, by_number, no_such
from kilocard.backends.runner import STATUS_LINES, Plan, Runner
from kilocard.core.clock import Clock
from kilocard.engines.base import Engine, Launch, Placement
from kilocard.net.client import fetch
from kilocard.spec.model import ClusterSpec, PoolSpec
from kilocard.spec.served import served_names

HOST = "127.0.0.1"


async def _get(url: str, limit: float) -> Answer:
    return await fetch(url, timeout=limit, max_bytes=4 * 1024 * 1024)


class LocalBackend:
    """See Backend. `engines` gives an engine by its name; `report` is called in the event loop's thread.

    `gpus`: None asks nvidia-smi and CUDA_VISIBLE_DEVICES in `open`. `default_model` gives the file for pools
    without a model whose engine takes one (it may block and download; called in a thread).
    """

    def __init__(
        self,
        spec: ClusterSpec,
        report: Report,
        log_dir: Path,
        engines: Callable[[str], Engine],
        *,
        gpus: Inventory | None = None,
        default_model: Callable[[], Path] = models.fetch,
        env: Mapping[str, str] | None = None,
        get: Get = _get,
        clock: Clock = time.monotonic,
    ) -> None:
        self._report = report
        self._log_dir = log_dir
        self._env = dict(os.environ if env is None else env)
        self._get = get
        self._clock = clock
        self._default_model = default_model
        self._look_for_gpus = gpus is None
        self._ports = Ports(HOST)
        self._engine_named = engines
        self._engines = {name: engines(pool.engine) for name, pool in spec.pools.items()}
        ours = {name: pool for name, pool in spec.pools.items() if self._starts(pool)}
        ledger = GpuLedger(gpus or Inventory((), "not looked for yet"))
        self._roster = Roster(ours, spec.pools.keys() - ours.keys(), self._gpu_count, ledger)
        #: our pools as the file had them when their first replica was started, and the model names that were told
        self._started = ours
        self._served = {name: served_names(spec, name) for name in ours}
        self._runners: dict[str, Runner] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    # ---- describe

    def replicas(self) -> tuple[ReplicaStatus, ...]:
        return tuple(self._runners[name].status() for name in sorted(self._runners, key=by_number))

    def describe(self, replica: str) -> ReplicaStatus:
        return self._runner(replica).status(STATUS_LINES)

    # ---- start

    async def open(self) -> None:
        """Raises GpuShortage, EngineError or BackendError before anything is started."""
        loop = asyncio.get_running_loop()
        pools = self._roster.pools
        if self._look_for_gpus and any(map(self._gpu_count, pools.values())):
            self._roster.ledger = GpuLedger(await loop.run_in_executor(None, discover, self._env))
        for name, pool in list(pools.items()):
            pools[name] = await self._startable(pool)
        self._begin(self._roster.seat({name: pool.replicas.min for name, pool in pools.items()}))

    async def _startable(self, pool: PoolSpec) -> PoolSpec:
        """The pool with all that its replicas need, or an error."""
        if pool.model is None and self._engines[pool.name].capabilities.default_model:
            file = await asyncio.get_running_loop().run_in_executor(None, self._default_model)
            pool = replace(pool, model=str(file))
        self._check_command(pool)
        return pool

    # ---- another cluster file

    def as_started(self, spec: ClusterSpec) -> tuple[ClusterSpec, list[str]]:
        """See as_started: what `change` is to be given, and what waits for a restart."""
        return as_started(spec, self._started, self._served)

    async def change(self, spec: ClusterSpec, take_over: Callable[[], None]) -> None:
        """Pools that are new start, those that are gone drain and stop, others follow `replicas.min` and `max`.

        Whatever may fail (no program, no GPU free) comes first and changes nothing. Then `take_over` tells whoever
        routes, then replicas are started and drained.
        """
        for name, pool in spec.pools.items():
            self._engines[name] = self._engine_named(pool.engine)
        ours = {name: pool for name, pool in spec.pools.items() if self._starts(pool)}
        pools, before = self._roster.pools, dict(self._roster.pools)
        new = [name for name in ours if name not in before]
        self._served.update((name, served_names(spec, name)) for name in new)
        statuses = self.replicas()
        missing, surplus = dict.fromkeys(new, 0), [s.id for s in statuses if s.pool in before.keys() - ours.keys()]
        try:
            for name, pool in ours.items():
                if name in new:
                    pools[name] = await self._startable(pool)
                    missing[name] = pool.replicas.min
                    continue
                pools[name] = replace(pool, model=before[name].model)
                count = sum(status.pool == name and status.state in ACTIVE for status in statuses)
                # with `scaling` the count is the controller's alone
                if pool.scaling is None and (before[name].replicas != pool.replicas or before[name].scaling):
                    count = pool.replicas.min
                missing[name], too_many = self._roster.change(name, count, statuses)
                surplus += too_many
            seats = self._roster.seat(missing)
        except BaseException:
            pools.clear()
            pools.update(before)
            raise
        for name in before.keys() - ours.keys():
            pools.pop(name, None)
            self._started.pop(name)
        self._started.update((name, ours[name]) for name in new)
        self._roster.not_ours = frozenset(spec.pools.keys() - ours.keys())
        take_over()
        self._begin(seats)
        for replica in surplus:
            self._runners[replica].tell(Drain(self._clock(), "the cluster file wants fewer replicas"))

    async def start(self, pool: str) -> str:
        self._roster.pool(pool)
        [seat] = self._roster.seat({pool: 1})
        self._begin([seat])
        return seat.replica

    async def scale(self, pool: str, count: int) -> None:
        missing, surplus = self._roster.change(pool, count, self.replicas())
        self._begin(self._roster.seat({pool: missing}))
        for replica in surplus:
            self._runners[replica].tell(Drain(self._clock(), f"scaled down to {count}"))

    def _begin(self, seats: Iterable[Seat]) -> None:
        for seat in seats:
            pool, engine, served = self._roster.pools[seat.pool], self._engines[seat.pool], self._served[seat.pool]
            plan = Plan(seat.replica, pool, engine, served, seat.gpus, self._log_dir, self._command)
            runner = Runner(plan, self._ports, self._report, self._get, self._clock)
            self._runners[seat.replica] = runner
            self._tasks[seat.replica] = asyncio.get_running_loop().create_task(self._run(runner))

    async def _run(self, runner: Runner) -> None:
        try:
            await runner.run()
        finally:
            self._roster.leave(runner.plan.id)

    # ---- the command

    def _check_command(self, pool: PoolSpec) -> None:
        """What can't work for any replica is an error now, not a crash loop later."""
        place = Placement(HOST, 1, tuple(range(self._gpu_count(pool))))
        self._command(self._engines[pool.name].launch(pool, place, self._served[pool.name]), place.gpus)

    def _command(self, launch: Launch, gpus: tuple[int, ...]) -> tuple[list[str], Mapping[str, str]]:
        env = engine_env(launch, gpus, self._env)
        return engine_argv(launch, env), env

    # ---- stop

    async def drain(self, replica: str, reason: str) -> None:
        runner = self._runner(replica)
        runner.tell(Drain(self._clock(), reason))
        await runner.stopped.wait()

    def idle(self, replica: str) -> None:
        if replica in self._runners:
            self._runners[replica].tell(Idle(self._clock()))

    async def stop(self, replica: str, reason: str) -> None:
        runner = self._runner(replica)
        runner.tell(Stop(self._clock(), reason))
        await runner.stopped.wait()

    async def close(self) -> None:
        for runner in self._runners.values():
            runner.tell(Stop(self._clock(), "kilocard stops"))
        await asyncio.gather(*self._tasks.values())

    # ---- look-up

    def _starts(self, pool: PoolSpec) -> bool:
        return not pool.exists and self._engines[pool.name].capabilities.launchable

    def _gpu_count(self, pool: PoolSpec) -> int:
        return self._engines[pool.name].gpu_count(pool)

    def _runner(self, replica: str) -> Runner:
        if replica not in self._runners:
            raise no_such(replica, self._runners)
        return self._runners[replica]
