"""Lives one local replica's life: performs what `Life` wants, and tells it what happens."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import assert_never

from kilocard.backends.base import ReplicaState, ReplicaStatus, Report
from kilocard.backends.last_words import FIRST_LINE, exit_reason
from kilocard.backends.life_events import (
    AnnounceFound,
    AnnounceLeaving,
    AnnounceLost,
    Begin,
    Event,
    Exited,
    Health,
    Hint,
    Instruction,
    Kill,
    Probed,
    Spawn,
    Spawned,
    SpawnFailed,
    Terminate,
    Tick,
)
from kilocard.backends.lifecycle import Life
from kilocard.backends.news import news_in_time
from kilocard.backends.ports import Ports
from kilocard.backends.process import EngineProcess, Process, StartProcess
from kilocard.backends.readiness import Get, probe
from kilocard.backends.replica_log import ReplicaLog
from kilocard.core.clock import Clock
from kilocard.core.errors import KilocardError
from kilocard.core.replica import Endpoint, Found, Leaving, Lost
from kilocard.engines.base import Engine, Launch, Placement
from kilocard.engines.model_list import wanted_models
from kilocard.spec.model import PoolSpec

#: seconds between two probes before a replica is ready: often at first, since small engines start in 1–2 s
EAGER_INTERVAL = 0.1
EAGER_SECONDS = 10.0
LOADING_INTERVAL = 0.5
#: and once it is ready
READY_INTERVAL = 5.0
#: lines that are looked at for the last words of an engine, and lines in a status
LAST_WORDS_LINES = 400
STATUS_LINES = 20


@dataclass(frozen=True, slots=True)
class Plan:
    """All that one replica is made from."""

    id: str
    pool: PoolSpec
    engine: Engine
    served_names: tuple[str, ...]
    gpus: tuple[int, ...]
    log_dir: Path
    #: a Launch to (argv, whole environment); raises BackendError where the program is nowhere to be found
    command: Callable[[Launch, tuple[int, ...]], tuple[list[str], Mapping[str, str]]]
    start: StartProcess = EngineProcess.start


class Runner:
    """Made: its state is `starting`. Its process follows when `run` is awaited.

    `changed` is called after each event that it was told: its status may be another.
    """

    def __init__(
        self,
        plan: Plan,
        ports: Ports,
        report: Report,
        get: Get,
        clock: Clock,
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        self.plan = plan
        self.life = Life(plan.pool.start, plan.pool.drain.grace, clock())
        self.log = ReplicaLog(plan.log_dir / f"{plan.id}.log")
        self._ports = ports
        self._report = report
        self._get = get
        self._clock = clock
        self._changed = changed
        self._todo: deque[Instruction] = deque()
        self._wake = asyncio.Event()
        self._port: int | None = None
        self._process: Process | None = None
        self._watchers: list[asyncio.Task[None]] = []
        self.stopped = asyncio.Event()
        self.tell(Begin(clock()))

    @property
    def url(self) -> str | None:
        return None if self._port is None else f"http://{self._ports.host}:{self._port}"

    def status(self, lines: int = 0) -> ReplicaStatus:
        life = self.life
        return ReplicaStatus(
            id=self.plan.id,
            pool=self.plan.pool.name,
            state=life.state,
            url=self.url,
            pid=self._process.pid if self._process is not None else None,
            gpus=self.plan.gpus,
            since=life.since,
            reason=life.reason,
            restarts=max(0, life.restarts),
            phases=life.phases,
            log=self.log.tail(lines) if lines else (),
            log_file=str(self.log.path),
        )

    def tell(self, event: Event) -> None:
        """The state changes at once; what it asks for is done by `run`, in order."""
        self._todo.extend(self.life.on(event))
        self._wake.set()
        self._changed()

    async def run(self) -> None:
        """Until the replica has stopped. If it is cancelled, the process is killed."""
        try:
            while self._todo or self.life.state is not ReplicaState.STOPPED:
                if self._todo:
                    await self._perform(self._todo.popleft())
                else:
                    await self._something()
        finally:
            await self._end_watchers()
            if self._process is not None:
                self._process.kill()
            if self._port is not None:
                self._ports.give_back(self._port)
                self._port = None
            self.stopped.set()

    async def _something(self) -> None:
        """Wait for news or for the deadline."""
        if not await news_in_time(self._wake, self.life.deadline, self._clock):
            self.tell(Tick(self._clock()))

    async def _perform(self, instruction: Instruction) -> None:
        match instruction:
            case Spawn():
                await self._spawn()
            case AnnounceFound():
                assert self.url is not None, "a replica that was probed has an address"
                self._report(Found(Endpoint(self.plan.id, self.plan.pool.name, self.url)))
            case AnnounceLeaving(reason):
                self._report(Leaving(self.plan.id, reason))
            case AnnounceLost(reason):
                self._report(Lost(self.plan.id, reason))
            case Terminate():
                if self._process is not None:
                    self._process.terminate()
            case Kill():
                if self._process is not None:
                    self._process.kill()
            case _:  # pragma: no cover
                assert_never(instruction)

    # ---- the process

    async def _spawn(self) -> None:
        plan = self.plan
        try:
            port = self._take_port()
            launch = plan.engine.launch(plan.pool, Placement(self._ports.host, port, plan.gpus), plan.served_names)
            argv, env = plan.command(launch, plan.gpus)
            log = self.log.rotate()
            try:
                os.write(log, f"{FIRST_LINE}{' '.join(argv)}\n".encode())
                self._process = await plan.start(argv, env, log)
            finally:
                os.close(log)
        except (KilocardError, OSError) as error:
            self.tell(SpawnFailed(self._clock(), str(error)))
            return
        self.tell(Spawned(self._clock()))
        watch = asyncio.get_running_loop().create_task
        self._watchers = [watch(self._watch_exit(self._process)), watch(self._watch_log()), watch(self._watch_health())]

    def _take_port(self) -> int:
        """The same port at every start, unless somebody else has it now."""
        if self._port is not None and not self._ports.is_free(self._port):
            self._port = None  # not given back: somebody listens on it
        if self._port is None:
            self._port = self._ports.take()
        return self._port

    async def _watch_exit(self, process: Process) -> None:
        code = await process.wait()
        self._process = None
        reason = exit_reason(code, self.log.tail(LAST_WORDS_LINES), self.plan.engine.loading_hint)
        for task in self._watchers[1:]:
            task.cancel()
        self.tell(Exited(self._clock(), reason))

    async def _watch_log(self) -> None:
        loading = (ReplicaState.STARTING, ReplicaState.LOADING)
        while True:
            lines = self.log.new_lines()
            if self.life.state in loading:
                hints = [hint for line in lines if (hint := self.plan.engine.loading_hint(line))]
                if hints:
                    self.tell(Hint(self._clock(), hints[-1]))
            await asyncio.sleep(0.2 if self.life.state in loading else READY_INTERVAL)

    async def _watch_health(self) -> None:
        engine, pool = self.plan.engine, self.plan.pool
        path = engine.readiness_path(pool)
        wanted = wanted_models(engine, pool, self.plan.served_names)
        began = self._clock()
        while True:
            url = self.url
            if url is not None:
                ready = self.life.state is ReplicaState.READY
                health, detail = await probe(self._get, url, path, () if ready else wanted)
                self.tell(Probed(self._clock(), health, detail))
                if health is Health.READY:
                    await asyncio.sleep(READY_INTERVAL)
                    continue
            eager = self._clock() - began < EAGER_SECONDS
            await asyncio.sleep(EAGER_INTERVAL if eager else LOADING_INTERVAL)

    async def _end_watchers(self) -> None:
        for task in self._watchers:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
