"""The one composition root: a cluster file becomes running parts."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from kilocard.backends import models
from kilocard.backends.local import LocalBackend
from kilocard.cli.records import Records
from kilocard.cli.traces import tracing
from kilocard.controller.controller import Controller
from kilocard.controller.lease import FileLease
from kilocard.controller.memory import MemoryFile
from kilocard.controller.meters import ControllerMeters
from kilocard.controller.sources import InProcess
from kilocard.controller.view import view
from kilocard.core.errors import UsageError
from kilocard.engines.registry import engine
from kilocard.gateway.key_meters import KeyMeters
from kilocard.gateway.parts import Part
from kilocard.gateway.reloader import Reloaded
from kilocard.gateway.seat import Seat
from kilocard.gateway.server import Gateway
from kilocard.gateway.signals import signals
from kilocard.gateway.sources import nowhere
from kilocard.metrics.meters import Counter
from kilocard.metrics.render import Family
from kilocard.scrape.discovery.configured import configured
from kilocard.spec.load import Digests, load
from kilocard.spec.model import ClusterSpec, PoolSpec
from kilocard.spec.services import OidcSpec
from kilocard.spec.units import listen_address
from kilocard.stores.budget_keeper import BudgetKeeper
from kilocard.stores.budgets import SqliteBudgets
from kilocard.stores.key_store import KeyStore
from kilocard.stores.keyring import KeyRing, KeySource, Tokens, wall_clock
from kilocard.stores.keys_file import KeysFile
from kilocard.stores.redis_limits import RedisLimits
from kilocard.tenancy.access import Access
from kilocard.tenancy.book import Book
from kilocard.tenancy.limits import has_budgets
from kilocard.tenancy.openness import refuse_open
from kilocard.workers.supervisor import Supervisor


def read_cluster(path: Path) -> ClusterSpec:
    """The cluster file with ${NAME} taken from the environment. Raises SpecError."""
    return load(path, env=os.environ)


class ClusterFile:
    """A cluster file under what the command line says; read at the start, and again at each reload."""

    def __init__(self, path: Path, port: int | None = None, admin_port: int | None = None) -> None:
        self.path = path
        self._ports = (port, admin_port)

    def read(self, digests: Digests | None = None) -> ClusterSpec:
        """The cluster, with ${NAME} taken from the environment; `digests` as for load. Raises SpecError, UsageError."""
        return self._read(digests, pipes=True)

    def read_again(self, digests: Digests) -> ClusterSpec:
        """While something runs, which a pipe that nobody writes to must not hold up."""
        return self._read(digests, pipes=False)

    def _read(self, digests: Digests | None, *, pipes: bool) -> ClusterSpec:
        return listening_on(load(self.path, env=os.environ, digests=digests, pipes=pipes), *self._ports)


def listening_on(spec: ClusterSpec, port: int | None, admin_port: int | None) -> ClusterSpec:
    """The same cluster with other ports, from the command line. Raises UsageError where it must not listen there."""
    gateway = spec.gateway
    if port is not None:
        gateway = replace(gateway, listen=f"{_host(gateway.listen)}:{_port(port)}")
    if admin_port is not None:
        gateway = replace(gateway, admin=f"{_host(gateway.admin)}:{_port(admin_port)}")
    if gateway.listen == gateway.admin and not gateway.listen.endswith(":0"):
        raise UsageError(f"the gateway and its admin listener can't both use {gateway.listen}")
    spec = replace(spec, gateway=gateway)
    refuse_open(spec)
    return spec


def _host(listen: str) -> str:
    host = listen_address(listen).host
    return f"[{host}]" if ":" in host else host


def _port(port: int) -> int:
    if not 0 <= port <= 65535:
        raise UsageError(f"{port} is not a port: use 1–65535, or 0 for any free one")
    return port


def cache_dir() -> Path:
    """Where logs and models go: $KILOCARD_HOME, else ~/.cache/kilocard."""
    home = os.environ.get("KILOCARD_HOME")
    return Path(home) if home else Path.home() / ".cache" / "kilocard"


def store_path(spec: ClusterSpec) -> Path:
    """The embedded store's file."""
    return Path(spec.gateway.store) if spec.gateway.store else cache_dir() / "kilocard.db"


def gateway_of(
    spec: ClusterSpec, describe: Callable[[], dict[str, dict[str, Any]]] = dict, seat: Seat | None = None
) -> Gateway:
    """A gateway with all that its cluster file asks for, not started. Raises UsageError where an extra is missing."""
    sources = configured if seat is None else nowhere
    store = count(spec) if seat is None else None
    limits = store if seat is None else seat.limits
    gateway = Gateway(spec, sources=sources, describe=describe, limit_store=limits, seat=seat)
    keys = key_ring(spec, gateway)
    gateway.parts.append(keys)
    gateway.on_reload.append(lambda spec: keys.declare(spec.tenants))
    if store is not None:
        gateway.parts.append(keeper(spec, store, gateway.plane.telemetry.store_errors, gateway.on_reload))
    gateway.parts.append(Records(spec, gateway.plane, store_path(spec)))
    if spec.gateway.tracing is not None:
        gateway.parts.append(tracing(spec.gateway.tracing, gateway))
    return gateway


def key_ring(spec: ClusterSpec, gateway: Gateway) -> KeyRing:
    """The keys of all sources, for this gateway."""
    sources: list[KeySource] = []
    if spec.gateway.keys_file is not None:
        sources.append(KeysFile(Path(spec.gateway.keys_file)))
    sources.append(KeyStore(store_path(spec)))
    tokens = _issuer(spec.gateway.oidc) if spec.gateway.oidc is not None else None
    plane = gateway.plane

    def swap(access: Access) -> None:
        plane.access = access

    ring = KeyRing(spec.tenants, sources, swap, tokens=tokens)
    KeyMeters(ring.sources, plane.telemetry.registry)
    return ring


def count(spec: ClusterSpec) -> Book | RedisLimits:
    """What counts tenants' use: this process alone, or all gateways with the same store together."""
    url = spec.gateway.limit_store
    return Book() if url is None else RedisLimits(url)


def keeper(
    spec: ClusterSpec,
    store: Book | RedisLimits,
    errors: Family[Counter],
    on_reload: list[Callable[[ClusterSpec], None]],
) -> Part:
    """What keeps the counts through restarts: a book is brought to disk, a shared store keeps itself."""
    if not isinstance(store, Book):
        return store
    kept = budgets(spec, store, errors)
    on_reload.append(lambda spec: kept.declare(spec.tenants.values()))
    return kept


def budgets(spec: ClusterSpec, book: Book, errors: Family[Counter]) -> BudgetKeeper:
    """The book's budgets in the embedded store; no file is made before somebody has one."""
    store = SqliteBudgets(store_path(spec))
    return BudgetKeeper(book, store, errors.labels("budgets").inc, read_at_start=has_budgets(spec.tenants.values()))


def _issuer(oidc: OidcSpec) -> Tokens:
    try:
        from kilocard.stores.issuer import Issuer
    except ImportError as error:
        raise UsageError(f"gateway.oidc needs the extra oidc: pip install 'kilocard[oidc]' ({error})") from error
    return Issuer(oidc, wall_clock)


def supervisor_of(spec: ClusterSpec, workers: int) -> Supervisor:
    """Several gateways on one port, over replicas that exist."""
    command = (sys.executable, "-m", "kilocard.cli.worker")
    store = count(spec)
    supervisor = Supervisor(spec, workers=workers, command=command, limit_store=store, sources=configured)
    supervisor.parts.append(keeper(spec, store, supervisor.pages.store_errors, supervisor.on_reload))
    return supervisor


def gpus_of(pool: PoolSpec) -> int:
    """What one replica takes."""
    return engine(pool.engine).gpu_count(pool)


class LocalCluster:
    """A gateway and the replicas of this machine behind it."""

    def __init__(self, spec: ClusterSpec) -> None:
        self.spec = spec
        self.gateway = gateway_of(spec, self._describe)
        port = listen_address(spec.gateway.listen).port
        self.log_dir = cache_dir() / "logs" / str(port or f"pid-{os.getpid()}")
        fetch_model = partial(models.fetch, progress=sys.stderr)
        self.backend = LocalBackend(spec, self.gateway.apply, self.log_dir, engine, default_model=fetch_model)
        self.gateway.plane.on_drained = self.backend.idle
        self.controller: Controller | None = None
        self._one_change_at_a_time = asyncio.Lock()

    async def start(self) -> None:
        """Ports first, since their errors come at once; then the engines."""
        await self.gateway.start()
        try:
            async with self._one_change_at_a_time:
                await self.backend.open()
        except BaseException:
            await self.stop()
            raise
        self.controller = self._controller()
        self.controller.start()

    async def reload(self, spec: ClusterSpec) -> Reloaded:
        """Gateway and replicas follow another cluster file. Raises KilocardError with nothing changed."""
        done: list[Reloaded] = []
        async with self._one_change_at_a_time:
            spec, waiting = self.backend.as_started(spec)
            await self.backend.change(spec, lambda: done.append(self.gateway.reload(spec)))
        self.spec = self.gateway.spec
        if self.controller is not None:
            self.controller.adopt(self.spec)
        return Reloaded(done[0].changed, [*done[0].restart, *waiting])

    async def stop(self) -> None:
        """No more decisions, requests finish, then engines stop."""
        if self.controller is not None:
            await self.controller.close(finished=True)
        await self.gateway.stop()
        await self.backend.close()
        if self.controller is not None:
            await self.controller.release()

    def _controller(self) -> Controller:
        """It asks the gateway of this process. Two of these can't have one port, so its lease is always to be had."""
        plane = self.gateway.plane
        files = store_path(self.spec).parent / f"controller-{self.gateway.port}"
        controller = Controller(
            self.spec, self.backend, InProcess(lambda: signals(plane)), FileLease(files.with_suffix(".lock")),
            MemoryFile(files.with_suffix(".json")), gpus=gpus_of, outlives=False,
        )  # fmt: skip
        ControllerMeters(controller, plane.telemetry.registry)
        plane.on_nobody = controller.wake
        self.gateway.scaling = lambda: view(controller) if controller.keepers else None
        return controller

    def _describe(self) -> dict[str, dict[str, Any]]:
        return {
            status.id: {
                "pool": status.pool,
                "state": status.state.value,
                "url": status.url,
                "reason": status.reason,
                "pid": status.pid,
                "gpus": list(status.gpus),
                "restarts": status.restarts,
                "start_s": status.phases.total,
                "log_file": status.log_file,
            }
            for status in self.backend.replicas()
        }
