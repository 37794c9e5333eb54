"""The actor of one further process of a replica that has several."""

from __future__ import annotations

import asyncio
import os

from kilocard.backends.last_words import FIRST_LINE, exit_reason
from kilocard.backends.launching import engine_argv
from kilocard.backends.ports import Ports
from kilocard.backends.process import EngineProcess
from kilocard.backends.ray import node
from kilocard.backends.ray.group import part_of
from kilocard.backends.ray.plan import HostPlan
from kilocard.backends.replica_log import ReplicaLog
from kilocard.backends.runner import LAST_WORDS_LINES
from kilocard.engines.base import Placement


class PartHost:
    """Made as a Ray actor. It does what the leader says; it decides nothing."""

    def __init__(self, plan: HostPlan, rank: int) -> None:
        self._plan = plan
        self._rank = rank
        self._host = node.address()
        self._gpus = node.gpu_ids()
        #: some engines want one in every part, though only the leader serves
        self._port = Ports(self._host).take()
        self._log = ReplicaLog(node.log_dir(plan.namespace) / f"{plan.replica}.part-{rank}.log")
        self._process: EngineProcess | None = None

    async def start(self, leader: str) -> int:
        """Returns the process id. Raises what makes a start impossible."""
        plan = self._plan
        group = plan.engine.capabilities.group
        assert group is not None, "only engines that span nodes have parts"
        indices = tuple(gpu for gpu in self._gpus if isinstance(gpu, int))
        place = Placement(self._host, self._port, indices)
        whole = plan.engine.launch(plan.pool, place, plan.served_names)
        launch = part_of(whole, group, self._rank, plan.parts, leader, self._host)
        env = node.process_env(plan, launch, self._gpus, self._host)
        argv = engine_argv(launch, env)
        log = self._log.rotate()
        try:
            os.write(log, f"{FIRST_LINE}{' '.join(argv)}\n".encode())
            self._process = await EngineProcess.start(argv, env, log)
        finally:
            os.close(log)
        return self._process.pid

    async def wait(self) -> tuple[int, str]:
        """Exit code, and its last words with the node's address."""
        assert self._process is not None, "start comes first"
        code = await self._process.wait()
        words = exit_reason(code, self._log.tail(LAST_WORDS_LINES), self._plan.engine.loading_hint)
        return code, f"part {self._rank} on {self._host} {words}"

    async def kill(self) -> None:
        if self._process is not None and not self._process.exited:
            self._process.kill()

    async def here(self) -> None:
        """Never returns: its caller learns of this actor's end."""
        await asyncio.Event().wait()
