"""What one node says of its software. Runs as a task on each node, before kilocard is known to be there.

Shipped by value: standard library only, nothing of kilocard, and only what is cheap. No engine is started for its
version: the version of a Python distribution stands in the name of a folder beside the engine's program.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence

#: seconds; a driver in trouble can hang nvidia-smi for minutes
DRIVER_SECONDS = 15.0
#: told beside an engine's own version: they come with it, but not always the same
BESIDE = ("torch", "nvidia-nccl")


def gather(pools: Mapping[str, tuple[str, str | None]]) -> tuple[dict[str, str], dict[str, dict[str, str]]]:
    """(versions, engines) as NodeFacts has them. `pools`: name → (the engine's program, its distribution)."""
    versions = {"python": platform.python_version(), **_of_ray(), **_of_driver()}
    here = distributions(_site_packages(sys.prefix))
    if "kilocard" in here:
        versions["kilocard"] = here["kilocard"]
    else:
        versions["kilocard"] = _of_kilocard()
    engines = {}
    for pool, (program, distribution) in pools.items():
        engines[pool] = engine_versions(program, distribution) if distribution else {}
    return versions, engines


def engine_versions(program: str, distribution: str) -> dict[str, str]:
    """Versions in the virtual environment (or system) that this program of the engine belongs to."""
    beside = os.path.dirname(sys.executable)
    found = shutil.which(program, path=os.pathsep.join([beside, os.environ.get("PATH", os.defpath)]))
    if found is None:
        return {distribution: "not installed"}
    have = distributions(_site_packages(os.path.dirname(os.path.dirname(_interpreter(found)))))
    wanted = {name: version for name, version in have.items() if name == distribution or name.startswith(BESIDE)}
    return wanted if distribution in wanted else {}


def distributions(folders: Sequence[str]) -> dict[str, str]:
    """Name (lower case, "-") → version, from the names of `.dist-info` folders."""
    found: dict[str, str] = {}
    for folder in folders:
        try:
            names = os.listdir(folder)
        except OSError:
            continue
        for name in names:
            match = re.fullmatch(r"([A-Za-z0-9._]+)-([^-]+)\.dist-info", name)
            if match:
                found.setdefault(match[1].lower().replace("_", "-").replace(".", "-"), match[2])
    return found


def _site_packages(prefix: str) -> list[str]:
    lib = os.path.join(prefix, "lib")
    try:
        versions = sorted(name for name in os.listdir(lib) if name.startswith("python"))
    except OSError:
        return []
    return [os.path.join(lib, name, kind) for name in versions for kind in ("site-packages", "dist-packages")]


def _interpreter(program: str) -> str:
    """The Python that runs a script, from its first line; else the program itself (it may be a Python)."""
    try:
        with open(program, "rb") as file:
            first = file.readline(512)
    except OSError:
        return program
    if not first.startswith(b"#!"):
        return program
    words = first[2:].decode("utf-8", "replace").split()
    return words[0] if words and os.path.basename(words[0]).startswith("python") else program


def _of_ray() -> dict[str, str]:
    module = sys.modules.get("ray")
    return {"ray": str(module.__version__)} if module is not None else {}


def _of_kilocard() -> str:
    """Where it is no installed distribution (a source tree on PYTHONPATH) the package says it."""
    try:
        import kilocard
    except ImportError:
        return "not installed"
    return str(kilocard.__version__)


def _of_driver() -> dict[str, str]:
    found: dict[str, str] = {}
    try:
        text = subprocess.run(  # the user's own driver tool, wherever the distribution puts it
            ["nvidia-smi", "-q"],  # noqa: S607  # same
            capture_output=True,
            text=True,
            timeout=DRIVER_SECONDS,
            check=True,
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return found
    for name, title in (("driver", "Driver Version"), ("cuda", "CUDA Version")):
        match = re.search(rf"^{title}\s*: (\S+)", text, re.MULTILINE)
        if match:
            found[name] = match[1]
    return found
