"""From an engine's Launch to the command and the environment of a process on this machine."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping, Sequence

from kilocard.core.errors import BackendError
from kilocard.engines.base import Launch


def engine_env(launch: Launch, gpus: Sequence[int | str], env: Mapping[str, str]) -> dict[str, str]:
    """The whole environment: `env` (the parent's) with these GPUs visible and no others, and the launch's own."""
    whole = dict(env)
    if gpus:
        # nvidia-smi numbers GPUs by bus; CUDA by speed unless told so
        whole["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
        whole["CUDA_VISIBLE_DEVICES"] = ",".join(str(gpu) for gpu in gpus)
    else:
        whole["CUDA_VISIBLE_DEVICES"] = ""  # it was given none, so it must not help itself to others'
    whole["PYTHONUNBUFFERED"] = "1"  # else the log's last words stay in a buffer when an engine is killed
    whole.update(launch.env)
    return whole


def engine_argv(launch: Launch, env: Mapping[str, str]) -> list[str]:
    """The command with its program's path. Raises BackendError where the program is nowhere to be found."""
    # what is installed beside us comes first, also where our virtual environment is not activated
    beside = os.path.dirname(sys.executable)
    program = shutil.which(launch.argv[0], path=os.pathsep.join([beside, env.get("PATH", os.defpath)]))
    if program is not None:
        return [program, *launch.argv[1:]]
    if launch.fallback_module is not None:
        return [sys.executable, "-m", launch.fallback_module, *launch.argv[1:]]
    raise BackendError(
        f"can't find the program {launch.argv[0]}: install it, put it on PATH, or give its path as `command` "
        "in the pool"
    )
