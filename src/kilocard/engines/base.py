"""What the rest of kilocard may ask about an engine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from kilocard.metrics.dialect import Dialect
from kilocard.spec.model import PoolSpec


@dataclass(frozen=True, slots=True)
class Group:
    """Flags with which an engine's processes on several machines become one replica, without Ray."""

    #: of each process; {size}, {rank} (0: the one that answers requests) and {leader} (its address) are filled in
    flags: tuple[str, ...]
    #: of those with a rank above 0
    worker_flags: tuple[str, ...] = ()
    #: first version with these flags
    since: tuple[int, ...] = (0,)
    #: environment variable with the address under which the others reach a process; None: it finds out by itself
    address_env: str | None = None


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What differs between engines and matters to a gateway, a controller or a doctor."""

    #: closing the connection stops the generation
    aborts_on_disconnect: bool
    #: understands stream_options.include_usage
    stream_usage: bool
    #: reuses KV of a shared prefix
    prefix_cache: bool
    #: flag that makes it finish running requests on SIGTERM, e.g. "--shutdown-timeout"; None: it has none
    shutdown_flag: str | None
    #: seconds that it keeps an idle connection; None: unknown
    keep_alive: float | None
    #: needs a GPU for each replica unless the pool says otherwise
    needs_gpu: bool
    #: `kilocard up` can start it
    launchable: bool
    #: a pool without `model` gets the small model that `kilocard model fetch` fetches (a GGUF file)
    default_model: bool = False
    #: /v1/models lists exactly what it serves: ready then also means that `upstream_model` is in that list
    lists_models: bool = False
    #: reads keys of a JSON body in any case (Go's encoding/json): "Model" is "model" to it
    keys_in_any_case: bool = False
    #: how it shares GPU memory out: "profiled", "static" or "of_free" (perf/setting.py)
    memory_budget: str = "profiled"
    #: on SIGTERM it lets running requests finish by itself, without `shutdown_flag`
    finishes_on_term: bool = False
    #: its own container image, with {version} in it; None: it has none that suits, a pool has to name one
    image: str | None = None
    #: environment variable with the folder in which it keeps what it fetches from a hub
    hub_cache: str | None = None
    #: how one replica runs over several machines; None: it can't
    group: Group | None = None
    #: (argument, value) pairs with any of which it takes its GPUs from a Ray cluster itself, wherever they are
    places_itself: tuple[tuple[str, str], ...] = ()
    #: Ray Serve's own LLM application runs it
    ray_serve: bool = False
    #: the Python distribution whose version is the engine's; None: it is no Python program
    distribution: str | None = None


@dataclass(frozen=True, slots=True)
class Launch:
    """One engine process: what to run and with which environment (added to the parent's)."""

    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    #: Python module that takes the same flags; run with our own interpreter where argv[0] is not on PATH
    fallback_module: str | None = None


@dataclass(frozen=True, slots=True)
class Placement:
    """Where one replica is to run."""

    host: str
    port: int
    #: indices of the GPUs that are this replica's alone; empty: none
    gpus: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class MetricsPage:
    path: str
    dialect: Dialect


class Engine(Protocol):
    """One file in this room implements one engine; `registry.py` lists them by name."""

    name: str
    capabilities: Capabilities

    def launch(self, pool: PoolSpec, place: Placement, served_names: tuple[str, ...]) -> Launch:
        """The command of one replica. `served_names` are the public model names that route to the pool.

        Raises EngineError where the pool can't be launched by this engine (says which key to change).
        """

    def upstream_model(self, pool: PoolSpec, public_name: str) -> str:
        """The name to put in "model" when a request for `public_name` goes to a replica of this pool."""

    def liveness_path(self, pool: PoolSpec) -> str: ...

    def readiness_path(self, pool: PoolSpec) -> str:
        """A GET that answers 200 only when the model can serve."""

    def loading_hint(self, line: str) -> str | None:
        """What an engine log line says about start-up progress or failure, in plain words; None: nothing."""

    def metrics_pages(self, pool: PoolSpec) -> tuple[MetricsPage, ...]:
        """Pages to try, best first; empty: in-flight counting is the only signal."""

    def max_running(self, pool: PoolSpec) -> int | None:
        """Requests that one replica runs at once (max-num-seqs, slots), from its arguments; None: unknown."""

    def gpu_count(self, pool: PoolSpec) -> int:
        """GPUs that one replica takes; 0 for engines that need none."""
