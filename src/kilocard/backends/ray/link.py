"""Ray as the rest of the backend sees it. Ray's calls block, so they run in a thread of their own."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

import ray
from ray.util.placement_group import PlacementGroup, placement_group, placement_group_table, remove_placement_group
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy, PlacementGroupSchedulingStrategy

from kilocard.backends.ray import node_facts
from kilocard.backends.ray.host import ReplicaHost
from kilocard.backends.ray.part import PartHost
from kilocard.backends.ray.plan import HostPlan
from kilocard.backends.ray.same_versions import NodeFacts
from kilocard.backends.ray.shape import NodeRoom, Shape
from kilocard.core.errors import BackendError

T = TypeVar("T")
#: seconds for the head to take a connection
HEAD_SECONDS = 5.0
#: seconds for a node to tell its facts: a worker process has to start there
FACTS_SECONDS = 120.0
#: seconds for an actor's process to start and import kilocard
HOST_SECONDS = 180.0
#: Else Ray kills the direct children of an actor that it kills: our guard would die before it can end what the engine
#: started, and that would be left behind (seen with Ray 2.60)
_HOST_ENV = {"RAY_kill_child_processes_on_worker_exit": "false"}


@dataclass(frozen=True, slots=True)
class Node:
    id: str
    #: "gpu-07 (10.0.0.7)"
    title: str
    room: NodeRoom


@dataclass(slots=True)
class Place:
    """A placement group of ours.

    What is made is noted here at once, in Ray's thread: whoever gives up in between still releases all of it.
    """

    name: str
    group: PlacementGroup | None = None
    #: handles of the actors in it; the first owns the replica
    actors: tuple[Any, ...] = ()


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a placement group is. `nodes`: where its bundles lie; None: not placed yet."""

    nodes: tuple[str, ...] | None
    infeasible: bool = False


class Link:
    """A connection to one Ray cluster. `detached`: actors outlive this process, and are found again by name."""

    def __init__(self, address: str, namespace: str, detached: bool) -> None:
        self.address = address
        self.namespace = namespace
        self._lifetime = "detached" if detached else None
        self._prefix = f"kilocard/{namespace}/"
        self._places = 0
        self._closed = False
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="ray")

    # ---- the connection

    async def open(self) -> None:
        """Raises BackendError where no cluster answers, or one of another Ray or Python."""
        host, _, port = (os.environ.get("RAY_ADDRESS", "") if self.address == "auto" else self.address).rpartition(":")
        if host and port.isdecimal():  # Ray itself would wait for minutes
            try:
                async with asyncio.timeout(HEAD_SECONDS):
                    _, writer = await asyncio.open_connection(host, int(port))
                writer.close()
            except (OSError, TimeoutError) as error:
                raise self._nobody(f"nobody answers there ({error or 'time-out'})") from error
        await self._do(self._open)

    def _open(self) -> None:
        try:
            ray.init(
                address=self.address,
                namespace=self.namespace,
                log_to_driver=False,
                configure_logging=False,
                include_dashboard=False,
            )
        except (ConnectionError, RuntimeError, ValueError) as error:
            raise self._nobody(first_line(error)) from error
        ray.cloudpickle.register_pickle_by_value(node_facts)  # kilocard may be missing there, and is to be told so

    def _nobody(self, why: str) -> BackendError:
        return BackendError(
            f"no Ray cluster at {self.address} that we can use: {why}. Start one with `ray start --head` "
            "(`kilocard render ray` writes all commands), or set ray.address or RAY_ADDRESS; this machine has to be a "
            "node of it (`ray start --address=HEAD:PORT --num-cpus=0 --num-gpus=0` makes it one without replicas)"
        )

    async def close(self) -> None:
        """Lets go of the cluster; what is detached runs on."""
        if not self._closed:
            self._closed = True
            await self._do(ray.shutdown)
            self._thread.shutdown()

    # ---- nodes

    async def nodes(self) -> list[Node]:
        """Those that are alive."""
        return [
            Node(
                one["NodeID"],
                f"{one['NodeManagerHostname']} ({one['NodeManagerAddress']})",
                _room(one),
            )
            for one in await self._do(ray.nodes)
            if one["Alive"]
        ]

    async def facts(self, node: Node, pools: Mapping[str, tuple[str, str | None]]) -> NodeFacts:
        """Raises BackendError where the node does not tell."""

        def ask() -> Any:
            where = NodeAffinitySchedulingStrategy(node.id, soft=False)
            task = ray.remote(node_facts.gather).options(num_cpus=0, scheduling_strategy=where, max_retries=0)
            return task.remote(dict(pools))

        try:
            async with asyncio.timeout(FACTS_SECONDS):
                versions, engines = await answer(await self._do(ask))
        except TimeoutError as error:
            raise BackendError(f"{node.title} did not tell its versions within {FACTS_SECONDS:g} s") from error
        except ray.exceptions.RayError as error:
            raise BackendError(f"{node.title} did not tell its versions: {why(error)}") from error
        return NodeFacts(node.title, versions, engines)

    # ---- places

    def place(self, replica: str) -> Place:
        """Of a name that was never used: a name is free again only some time after its group is gone."""
        self._places += 1
        return Place(f"{self._prefix}{replica}#{self._places}")

    async def reserve(self, place: Place, shape: Shape) -> None:
        """Returns at once; see progress."""
        labels = [dict(shape.labels)] * len(shape.bundles) if shape.labels else None

        def make() -> None:
            place.group = placement_group(
                [dict(bundle) for bundle in shape.bundles],
                strategy=shape.strategy,
                name=place.name,
                lifetime=self._lifetime,
                **({"bundle_label_selector": labels} if labels else {}),
            )

        await self._do(make)

    async def progress(self, place: Place) -> Progress:
        table = await self._do(lambda: placement_group_table(place.group))
        if table.get("state") == "CREATED":
            nodes = table["bundles_to_node_id"]
            return Progress(tuple(nodes[index] for index in sorted(nodes)))
        return Progress(None, table.get("stats", {}).get("scheduling_state") == "INFEASIBLE")

    async def start_host(self, place: Place, plan: HostPlan, shape: Shape) -> None:
        """Fills place.actors and begins the replica's life. Raises BackendError."""

        def actor(cls: type, index: int, name: str, *arguments: Any) -> Any:
            where = PlacementGroupSchedulingStrategy(place.group, placement_group_bundle_index=index)
            bundle = shape.bundles[index]
            made = ray.remote(cls).options(
                name=name,
                lifetime=self._lifetime,
                num_cpus=bundle.get("CPU", 0.0),
                num_gpus=bundle.get("GPU", 0.0),
                memory=bundle.get("memory"),
                scheduling_strategy=where,
                max_restarts=0,
                runtime_env={"env_vars": _HOST_ENV},
            )
            return made.remote(*arguments)

        def make() -> None:
            parts = tuple(actor(PartHost, rank, f"{place.name}/{rank}", plan, rank) for rank in range(1, plan.parts))
            place.actors = (actor(ReplicaHost, 0, place.name, plan, parts), *parts)

        try:
            await self._do(make)
            async with asyncio.timeout(HOST_SECONDS):
                await answer(place.actors[0].begin.remote())
        except TimeoutError as error:
            raise BackendError(f"its host did not start within {HOST_SECONDS:g} s") from error
        except (ray.exceptions.RayError, ValueError) as error:
            raise BackendError(f"its host did not start: {why(error)}") from error

    async def plan_of(self, place: Place) -> HostPlan:
        """What a host that was found was started with. Raises BackendError."""
        try:
            async with asyncio.timeout(HOST_SECONDS):
                plan: HostPlan = await answer(place.actors[0].plan.remote())
                await answer(place.actors[0].begin.remote())  # its first controller may have died before it said so
                return plan
        except TimeoutError as error:
            raise BackendError(f"no answer within {HOST_SECONDS:g} s") from error
        except ray.exceptions.RayError as error:
            raise BackendError(why(error)) from error

    async def release(self, place: Place) -> None:
        """Ends the actors (their engines end with them) and gives the place back."""

        def end() -> None:
            for actor in place.actors:
                with contextlib.suppress(ray.exceptions.RayError):
                    ray.kill(actor)
            if place.group is not None:
                with contextlib.suppress(ray.exceptions.RayError, ValueError):
                    remove_placement_group(place.group)  # ends actors in it, too

        await self._do(end)

    async def find(self) -> dict[str, Place]:
        """Replicas of ours that run on the cluster; what is left of others (a host without a place …) is removed."""
        return await self._do(self._find)

    def _find(self) -> dict[str, Place]:
        actors = {name: ray.get_actor(name) for name in ray.util.list_named_actors() if name.startswith(self._prefix)}
        tables = [table for table in placement_group_table().values() if table["state"] != "REMOVED"]
        groups = {
            table["name"]: PlacementGroup(ray.PlacementGroupID(bytes.fromhex(table["placement_group_id"])))
            for table in tables
            if table["name"].startswith(self._prefix)
        }
        found: dict[str, Place] = {}
        for name in sorted(groups.keys() | {name for name in actors if "#" in name}):
            group, first = groups.get(name), actors.pop(name, None)
            parts = sorted(other for other in actors if other.startswith(f"{name}/"))
            if group is not None and first is not None:
                replica, _, number = name.removeprefix(self._prefix).rpartition("#")
                self._places = max(self._places, int(number))
                found[replica] = Place(name, group, (first, *(actors.pop(part) for part in parts)))
            elif group is not None:
                remove_placement_group(group)
        for left in actors.values():
            ray.kill(left)
        return found

    async def _do(self, call: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, call)


def _room(node: Mapping[str, Any]) -> NodeRoom:
    has = node["Resources"]
    return NodeRoom(float(has.get("GPU", 0.0)), dict(node.get("Labels") or {}), float(has.get("CPU", 0.0)))


async def answer(reference: Any) -> Any:
    """What a remote call returns. Raises what it raised, or one of Ray's errors."""
    return await reference


def is_away(error: BaseException) -> bool:
    """The actor can't be reached now but may live: no reason to take it for dead."""
    return isinstance(error, ray.exceptions.ActorUnavailableError)


def is_rays(error: BaseException) -> bool:
    return isinstance(error, ray.exceptions.RayError)


def why(error: BaseException) -> str:
    """Ray's long texts in one line: why an actor or a task is dead."""
    text = str(error)
    match = re.search(r"The actor is dead because (?:its owner|it|its|the) .*", text)
    line = match[0].removeprefix("The actor is dead because ") if match else last_line(text)
    return line.partition(" Some common causes include")[0].strip()[:300] or type(error).__name__


def first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0][:300]


def last_line(text: str) -> str:
    """Of a remote traceback: the exception itself."""
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1].strip() if lines else ""
