"""Several processes on several nodes as one replica: they start together, and when one ends they all end."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from kilocard.backends.process import EngineProcess, Process
from kilocard.core.errors import BackendError
from kilocard.engines.base import Group, Launch

#: seconds for all parts to have their process
START_SECONDS = 60.0


def part_of(launch: Launch, group: Group, rank: int, size: int, leader: str, host: str) -> Launch:
    """The launch of the part with this rank, on `host`; `leader` is the address of rank 0's node."""
    flags = group.flags if rank == 0 else (*group.flags, *group.worker_flags)
    words = tuple(flag.format(size=size, rank=rank, leader=leader) for flag in flags)
    env = {} if group.address_env is None else {group.address_env: host}
    return replace(launch, argv=(*launch.argv, *words), env={**env, **launch.env})


class Leader:
    """The leader's side of a group; `parts` are handles of the PartHosts on the other places, rank 1 first."""

    def __init__(self, host: str, parts: Sequence[Any]) -> None:
        self._host = host
        self._parts = tuple(parts)

    async def start(self, argv: Sequence[str], env: Mapping[str, str], log: int) -> Process:
        """As EngineProcess.start, with the other parts' processes beside."""
        own = await EngineProcess.start(argv, env, log)
        starts = [_answer(part.start.remote(self._host)) for part in self._parts]
        try:
            async with asyncio.timeout(START_SECONDS):
                await asyncio.gather(*starts)
        except BaseException as error:
            own.kill()
            for part in self._parts:
                part.kill.remote()
            await own.wait()
            if isinstance(error, Exception):
                raise BackendError(f"a part of the replica did not start: {_first_line(error)}") from error
            raise
        return GroupProcess(own, self._parts, os.dup(log))


class GroupProcess:
    """See Process."""

    def __init__(self, own: EngineProcess, parts: Sequence[Any], log: int) -> None:
        self.pid = own.pid
        self._own = own
        self._parts = parts
        self._log = log

    async def wait(self) -> int:
        own = asyncio.ensure_future(self._own.wait())
        parts = [asyncio.ensure_future(_end_of(part, rank)) for rank, part in enumerate(self._parts, 1)]
        try:
            done, _ = await asyncio.wait([own, *parts], return_when=asyncio.FIRST_COMPLETED)
            if own in done:
                code = own.result()
            else:
                code, words = next(one.result() for one in parts if one in done)
                os.write(self._log, f"kilocard: {words}\n".encode())
                code = code or 1  # the leader did not end by itself: this is no good end
            self.kill()
            await asyncio.gather(own, *parts)
            return code
        finally:
            os.close(self._log)

    def terminate(self) -> None:
        """The leader alone: it ends its parts in order, and what is left of them is killed after it."""
        self._own.terminate()

    def kill(self) -> None:
        if not self._own.exited:
            self._own.kill()
        for part in self._parts:
            part.kill.remote()


async def _answer(reference: Any) -> Any:
    return await reference


async def _end_of(part: Any, rank: int) -> tuple[int, str]:
    try:
        code, words = await part.wait.remote()
    except Exception as error:  # whatever Ray says: this part is no more
        return 1, f"part {rank} is gone: error: {_first_line(error)}"
    return int(code), str(words)


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
