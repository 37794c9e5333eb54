"""What the engines' command lines have in common: the program, names, versions, GPUs."""

from __future__ import annotations

import re

from kilocard.core.errors import EngineError
from kilocard.engines.flags import arguments
from kilocard.spec.model import PoolSpec

#: advice for keys that every engine's command line gets from kilocard
HOST = "replicas listen where kilocard runs and reaches them"
PORT = "each replica gets a free port of its own"
MODEL = "use the pool's `model`"
SERVED_NAME = "names come from `models`; use the pool's `served_model_name` for another one"
TENSOR = "use `gpus: {tensor: N}`"
PIPELINE = "use `gpus: {pipeline: N}`"


def program(pool: PoolSpec, argv: list[str]) -> tuple[str, ...]:
    """`argv` with the pool's `command` instead of its first word.

    A command that goes on with the next words already (`/opt/venv/bin/vllm serve`) does not get them twice.
    """
    if not pool.command:
        return tuple(argv)
    rest = argv[1:]
    for overlap in range(min(len(pool.command), len(rest)), 0, -1):
        if tuple(rest[:overlap]) == pool.command[-overlap:]:
            rest = rest[overlap:]
            break
    return (*pool.command, *rest)


def model_of(pool: PoolSpec) -> str:
    """The pool's model source. Raises EngineError where it has none."""
    if not pool.model:
        raise EngineError(
            f"pool {pool.name!r}: engine {pool.engine} needs `model`: a hub name or a folder", param="model"
        )
    return pool.model


def one_name(pool: PoolSpec, served_names: tuple[str, ...]) -> str:
    """The name to serve, for engines that take one only. Raises EngineError where it is not clear which."""
    if pool.served_model_name:
        return pool.served_model_name
    if len(served_names) > 1:
        raise EngineError(
            f"pool {pool.name!r}: models {', '.join(served_names)} route to it, but engine {pool.engine} serves under "
            "one name; set `served_model_name` in the pool and requests will carry it",
            param="served_model_name",
        )
    return served_names[0] if served_names else pool.name


def version(pool: PoolSpec) -> tuple[int, ...] | None:
    """The pool's engine version as numbers ("v0.18.1+cpu" → (0, 18, 1)); None where it is not stated."""
    match = re.match(r"v?(\d+(?:\.\d+)*)", pool.version or "")
    return tuple(int(part) for part in match[1].split(".")) if match else None


def gpus(pool: PoolSpec, usual: int) -> int:
    """GPUs of one replica: `gpus` of the pool, else `usual` (unless it is told to run on the CPU)."""
    if pool.gpus is not None:
        return pool.gpus.per_replica
    return 0 if on_cpu(pool) else usual


def on_cpu(pool: PoolSpec) -> bool:
    """The pool says that it runs on the CPU: a CPU build's version, `device: cpu`, or GPUs hidden by its env."""
    return (
        "cpu" in (pool.version or "").lower()
        or arguments(pool).get("device") == "cpu"
        or pool.env.get("CUDA_VISIBLE_DEVICES") == ""
        or "VLLM_CPU_KVCACHE_SPACE" in pool.env
    )
