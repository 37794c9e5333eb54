"""A controller whose gateways are other processes, put together: backend, lease, what it hears and what it tells."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from kilocard.backends import models
from kilocard.backends.base import FollowingBackend, ReplicaState, Report
from kilocard.backends.local import LocalBackend
from kilocard.cli.wiring import cache_dir, gpus_of, store_path
from kilocard.controller.announcer import Announcer
from kilocard.controller.controller import Controller, wall_clock
from kilocard.controller.lease import FileLease
from kilocard.controller.memory import MemoryFile
from kilocard.controller.meters import ControllerMeters
from kilocard.controller.sources import AdminPages
from kilocard.controller.view import view
from kilocard.core.errors import BackendError, UsageError
from kilocard.engines.registry import engine
from kilocard.gateway.reloader import Reloaded
from kilocard.metrics.render import Registry
from kilocard.spec.changes import differences
from kilocard.spec.model import ClusterSpec

#: seconds between two tries to take the lead
TRY_EVERY = 1.0
#: and, at the end, between two questions whether requests still run
ASK_EVERY = 0.5
BACKENDS = ("local", "ray", "kubernetes")


def backend_of(kind: str, spec: ClusterSpec, report: Report, log_dir: Path, address: str | None) -> FollowingBackend:
    """Raises UsageError for one that there is not, or not here."""
    if kind == "local":
        fetch_model = partial(models.fetch, progress=sys.stderr)
        return LocalBackend(spec, report, log_dir, engine, default_model=fetch_model)
    if kind == "ray":
        try:
            from kilocard.backends.ray.backend import RayBackend

            return RayBackend(spec, report, engine, address=address)
        except ImportError as error:
            raise UsageError(f"--backend ray needs the extra ray: pip install 'kilocard[ray]' ({error})") from error
    if kind == "kubernetes":
        raise UsageError(
            "--backend kubernetes is not there yet: `kilocard render kubernetes` writes the manifests, and Kubernetes' "
            "own autoscaler can scale what they make"
        )
    raise UsageError(f"--backend {kind}: there is {', '.join(BACKENDS)}")


class ControlledCluster:
    """`file` is what makes two controllers two of one cluster. `admins`: base URLs of the gateways' admin listeners."""

    def __init__(self, spec: ClusterSpec, file: Path, kind: str, admins: Sequence[str], address: str | None) -> None:
        self.spec = spec
        name = hashlib.sha256(f"{kind} {file.resolve()}".encode()).hexdigest()[:12]
        self.log_dir = cache_dir() / "logs" / f"control-{name}"
        files = store_path(spec).parent / f"control-{name}"
        self.lease = FileLease(files.with_suffix(".lock"))
        self._memory = MemoryFile(files.with_suffix(".json"))
        self._pages = AdminPages(admins, time.monotonic)
        self._announcer = Announcer(self._pages, time.monotonic)
        self.backend = backend_of(kind, spec, self._announcer.report, self.log_dir, address)
        self.registry = Registry()
        #: None until this process leads
        self.controller: Controller | None = None
        self._one_change_at_a_time = asyncio.Lock()

    async def lead(self, told: Callable[[str], None]) -> None:
        """Wait until the lease is ours. `told` hears once who has it. Raises BackendError where it can't be asked."""
        said = ""
        while not await asyncio.to_thread(self._take):
            who = str(self.lease.holder() or "another controller leads")
            if who != said:
                told(said := who)
            await asyncio.sleep(TRY_EVERY)

    def _take(self) -> bool:
        try:
            return self.lease.take(wall_clock())
        except OSError as error:
            raise BackendError(
                f"the lease {self.lease.path} can't be asked: {error.strerror or error}; gateway.store has to be in a "
                "folder where files can be made"
            ) from error

    async def start(self) -> None:
        """Raises KilocardError where the backend can't begin; nothing is left running then."""
        outlives = not isinstance(self.backend, LocalBackend)
        try:
            async with self._one_change_at_a_time:
                await self.backend.open()
        except BaseException:
            with contextlib.suppress(Exception):
                await self._end()
            raise
        controller = self.controller = Controller(
            self.spec, self.backend, self._pages, self.lease, self._memory, gpus=gpus_of, outlives=outlives
        )
        ControllerMeters(controller, self.registry)
        self._announcer.scaling = partial(_shown, controller, self._announcer)
        self._announcer.start(self.backend)
        controller.start()

    async def reload(self, spec: ClusterSpec) -> Reloaded:
        """Pools follow another cluster file. Raises KilocardError with nothing changed."""
        changed = list(differences(self.spec, spec))
        async with self._one_change_at_a_time:
            spec, waiting = self.backend.as_started(spec)
            await self.backend.change(spec, lambda: None)
        self.spec = spec
        if self.controller is not None:
            self.controller.adopt(spec)
        return Reloaded(changed, waiting)

    async def stop(self) -> None:
        """Replicas that can live without us do; others finish their requests and end."""
        if self.controller is not None:
            local = isinstance(self.backend, LocalBackend)
            await self.controller.close(finished=local)
            if local:
                await self._drain_all()
        await self._end()
        await self._announcer.close()
        if self.controller is not None:
            await self._announcer.tell(self.backend)
        await asyncio.to_thread(self.lease.give_back)  # the last of all: from here on another one may start replicas

    async def _drain_all(self) -> None:
        """Gateways are told, and asked until nothing of theirs runs here or the pools' grace is over."""
        ready = [status.id for status in self.backend.replicas() if status.state is ReplicaState.READY]
        drains = asyncio.gather(*(self.backend.drain(replica, "the controller ends") for replica in ready))
        while not drains.done():
            await self._pages.read()
            await asyncio.wait([drains], timeout=ASK_EVERY)

    async def _end(self) -> None:
        let_go = getattr(self.backend, "let_go", None)
        await (self.backend.close() if let_go is None else let_go())


def _shown(controller: Controller, announcer: Announcer) -> dict[str, Any]:
    shown = view(controller)
    shown["controller"]["problems"] += announcer.problems
    return shown
