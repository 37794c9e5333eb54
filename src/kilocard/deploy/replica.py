"""One replica of a pool as any deployment starts it: image, command, environment, GPUs, how it ends.

What is here holds for containers anywhere; the objects of Kubernetes, Compose and the like are made of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import ceil

from kilocard.core.errors import UsageError
from kilocard.deploy.secrets import HUB_TOKENS, is_secret, public, refuse_secrets
from kilocard.engines import command
from kilocard.engines.base import Capabilities, Placement
from kilocard.engines.registry import engine
from kilocard.spec.model import ClusterSpec, PoolSpec
from kilocard.spec.served import served_names

#: where every replica listens inside its container
PORT = 8000
#: where a replica sees the folder of models
MODELS = "/models"
#: most of /dev/shm, in bytes; memory is taken only as it is used. Processes of one replica exchange tensors through it
SHM = 16 * 2**30
#: seconds in which every gateway has heard that a replica is leaving
ROUTED_AWAY = 5
#: seconds after the drain in which a process ends for good
AFTER_DRAIN = 15
#: R42: never less than this between the order to end and the kill
LEAST_GRACE = 120
#: folder of everything that comes from Hugging Face's hub
HUB_HOME = "HF_HOME"


@dataclass(frozen=True, slots=True)
class Machines:
    """How a replica's GPUs are spread."""

    count: int
    #: on each
    gpus: int


@dataclass(frozen=True, slots=True)
class Ending:
    """Seconds, all whole."""

    #: wait before SIGTERM: gateways stop sending; where the engine would cut running requests, they end here too
    before_term: int
    #: the same for the helpers of a replica over several machines: they stay until its requests are through
    worker_term: int
    #: from the order to end to SIGKILL
    grace: int


@dataclass(frozen=True, slots=True)
class Replica:
    pool: PoolSpec
    capabilities: Capabilities
    image: str
    argv: tuple[str, ...]
    #: without secrets
    env: Mapping[str, str]
    #: names of variables whose values belong into a Secret, as the cluster file has them
    secrets: tuple[str, ...]
    machines: Machines
    ending: Ending
    readiness_path: str
    #: its metrics page; None: it has none
    metrics_path: str | None

    @property
    def hub_model(self) -> bool:
        """Its model has to be fetched: it is no folder or file."""
        return self.capabilities.hub_cache is not None and not is_path(self.pool.model)

    @property
    def hub_tokens(self) -> tuple[str, ...]:
        """Variables that get the hub's token, as far as there is one: those of the cluster file, else the usual one."""
        usual = ("HF_TOKEN",) if self.hub_model and self.capabilities.hub_cache == HUB_HOME else ()
        return tuple(name for name in self.pool.env if name in HUB_TOKENS) or usual


def is_path(model: str | None) -> bool:
    return model is not None and model.startswith(("/", "./", "../", "~"))


Spread = Callable[[PoolSpec, int], Machines]


def replica(spec: ClusterSpec, pool: PoolSpec, own_image: str, spread: Spread | None = None) -> Replica:
    """`own_image`: the image with kilocard in it, for engines that are part of kilocard. `spread`: how its GPUs lie on
    machines; None: as `machines` says.

    Raises UsageError where no image can be known or the GPUs can't be spread, EngineError for arguments that the engine
    does not take.
    """
    runs = engine(pool.engine)
    launch = runs.launch(pool, Placement("0.0.0.0", PORT), served_names(spec, pool.name))  # noqa: S104  # in a pod
    if launch.env.get("VLLM_PORT") == str(PORT):
        raise UsageError(
            f"pool {pool.name!r}: env.VLLM_PORT is {PORT}, where the replica itself listens; it is the first port for "
            "talk between its processes: remove it, or give it another number"
        )
    refuse_secrets(pool)
    _refuse_places(pool, runs.capabilities)
    secrets = tuple(key for key, value in launch.env.items() if is_secret(key, value) and key not in HUB_TOKENS)
    pages = runs.metrics_pages(pool)
    return Replica(
        pool=pool,
        capabilities=runs.capabilities,
        image=_image(pool, runs.capabilities, own_image if launch.argv[0] == "kilocard" else None),
        argv=launch.argv,
        env=public(launch.env),
        secrets=secrets,
        machines=(spread or machines)(pool, runs.gpu_count(pool)),
        ending=ending(pool, launch.argv, runs.capabilities),
        readiness_path=runs.readiness_path(pool),
        metrics_path=pages[0].path if pages else None,
    )


def _refuse_places(pool: PoolSpec, capabilities: Capabilities) -> None:
    """Raises UsageError for files of the machine on which the cluster file was written: no container has them."""
    model, profile = pool.model, pool.profile
    nowhere = model is not None and is_path(model) and not model.startswith("/")
    if model is not None and (nowhere or (capabilities.default_model and not model.startswith("/"))):
        raise UsageError(
            f"pool {pool.name!r}: model {model} is a file or folder of this machine, which no container has: write an "
            f"absolute path, as {MODELS}/{model.rpartition('/')[2]}"
        )
    if profile is not None and not profile.startswith("/") and ("/" in profile or profile.endswith((".yaml", ".yml"))):
        raise UsageError(
            f"pool {pool.name!r}: profile {profile} is a file of this machine, which no container has: name a "
            "built-in profile, or an absolute path in an image of your own"
        )


def _image(pool: PoolSpec, capabilities: Capabilities, own: str | None) -> str:
    if pool.image is not None:
        return pool.image
    if own is not None:
        return own
    if capabilities.image is None:
        raise UsageError(f"pool {pool.name!r}: say which `image` has {pool.engine} in it; there is no usual one")
    if pool.version is None:
        raise UsageError(
            f"pool {pool.name!r}: say which `version` of {pool.engine} (or which `image`): replicas that start on "
            "different days must run the same"
        )
    return capabilities.image.format(version=pool.version.removeprefix("v"))


def ending(pool: PoolSpec, argv: tuple[str, ...], capabilities: Capabilities) -> Ending:
    """An engine that finishes requests after SIGTERM gets it soon, another one only when they have had their time."""
    drain = max(1, ceil(pool.drain.grace))
    finishes = capabilities.finishes_on_term or (
        capabilities.shutdown_flag is not None
        and any(word.partition("=")[0] == capabilities.shutdown_flag for word in argv)
    )
    slowly = ROUTED_AWAY + drain
    return Ending(ROUTED_AWAY if finishes else slowly, slowly, max(LEAST_GRACE, ROUTED_AWAY + drain + AFTER_DRAIN))


def machines(pool: PoolSpec, gpus: int) -> Machines:
    """The fewest machines with the same number of GPUs on each, `gpus.per_node` at most. Tensor-parallel groups are not
    torn apart unless they alone are larger than a machine, and then evenly.

    Raises UsageError for engines that can't span machines.
    """
    if pool.gpus is None or gpus <= pool.gpus.per_node:
        return Machines(1, gpus)
    if gpus != pool.gpus.per_replica:
        raise UsageError(
            f"pool {pool.name!r}: data-parallel engines behind one port can't be spread over several machines; use "
            "more `replicas` instead"
        )
    _can_span(pool)
    most, tensor = pool.gpus.per_node, pool.gpus.tensor
    for count in range(2, gpus):
        each, rest = divmod(gpus, count)
        if not rest and each <= most and (each % tensor == 0 or tensor % each == 0):
            return Machines(count, each)
    return Machines(gpus, 1)


def _can_span(pool: PoolSpec) -> None:
    group, version = engine(pool.engine).capabilities.group, command.version(pool)
    if group is None:
        raise UsageError(
            f"pool {pool.name!r}: its replicas need several machines of {pool.gpus and pool.gpus.per_node} GPUs, which "
            f"kilocard can't start {pool.engine} on: use fewer GPUs, or raise gpus.per_node if the machines have more"
        )
    if version is not None and version < group.since:
        raise UsageError(
            f"pool {pool.name!r}: {pool.engine} {pool.version} can't span several machines by itself; "
            f"{'.'.join(map(str, group.since))} can"
        )
