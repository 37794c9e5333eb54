"""Opens cluster files: the only place in this room that touches the disk."""

from __future__ import annotations

import hashlib
import stat
from collections.abc import Iterable, Mapping
from pathlib import Path as FilePath

from kilocard.core.errors import SpecError
from kilocard.spec.merge import merged
from kilocard.spec.model import ClusterSpec
from kilocard.spec.parse import read_cluster
from kilocard.spec.problems import InvalidClusterFile, Problem, Problems
from kilocard.spec.vocabulary import ENGINES
from kilocard.spec.yaml_document import Document, read_document
from kilocard.spec.yaml_nodes import complaint

#: bytes; a thousand pools take about 400 KB
LARGEST = 16 * 1024 * 1024
LONGEST_CHAIN = 16

#: files by name, and the SHA-256 of their content; "" for one that can't be read
Digests = dict[str, str]


def load(
    path: FilePath | str,
    *,
    env: Mapping[str, str] | None = None,
    engines: frozenset[str] = ENGINES,
    digests: Digests | None = None,
    pipes: bool = True,
) -> ClusterSpec:
    """The cluster in a YAML (or JSON) file, and in the files that it extends.

    `env` fills in `${NAME}`; callers pass `os.environ`. Raises SpecError that lists every problem, each with
    file, line, path and advice; for a file that can't be read it says why. `digests` is filled with the files that were
    opened, also where an error ends it: what to look at for news. `pipes`: whether a file may be a pipe; who writes to
    it is waited for, for ever if need be.
    """
    document = _read(FilePath(path), env or {}, (), {} if digests is None else digests, pipes)
    problems = Problems(document.lines)
    for where, problem, advice in document.found:
        problems.add(where, problem, advice)
    spec = read_cluster(document.value, problems, texts=document.texts, engines=engines)
    problems.raise_if_any()
    return spec


def digests_of(files: Iterable[str]) -> Digests:
    """What is in these files now."""
    return {file: _digest(FilePath(file)) for file in files}


def _digest(path: FilePath) -> str:
    try:
        return hashlib.sha256(_bytes(path)).hexdigest()
    except (SpecError, OSError, ValueError):
        return ""


def _read(
    path: FilePath, env: Mapping[str, str], chain: tuple[FilePath, ...], digests: Digests, pipes: bool
) -> Document:
    """One file merged over the one that it extends. `chain`: the files that led here."""
    file = str(path)
    digests[file] = ""
    data = _bytes(path, pipes=pipes)
    if path.is_file():  # a pipe gives its content once: there is no news to look for
        digests[file] = hashlib.sha256(data).hexdigest()
    document = read_document(_text(file, data), env=env, file=file)
    if not isinstance(document.value, dict) or "extends" not in document.value:
        return document
    base = document.value.pop("extends")
    at = document.lines.get(("extends",))
    if base is None:
        return document
    if not isinstance(base, str) or not base.strip() or "\0" in base:
        raise InvalidClusterFile([Problem(("extends",), at, "is no file name", "write extends: other.yaml")])
    # Not resolved: messages should name the file as people write it. Comparing is done on resolved paths.
    target = path.parent / base
    chain = (*chain, path)
    if _real(target) in {_real(one) for one in chain} or len(chain) > LONGEST_CHAIN:
        way = " → ".join(str(one) for one in (*chain, target))
        raise InvalidClusterFile([Problem(("extends",), at, f"goes round in a circle ({way})", "break the circle")])
    return merged(_read(target, env, chain, digests, pipes), document)


def _real(path: FilePath) -> FilePath:
    try:
        return path.resolve()
    except (OSError, RuntimeError):  # symbolic links in a circle; opening it will say so
        return path.absolute()


def _bytes(path: FilePath, *, pipes: bool = False) -> bytes:
    """What is in the file; SpecError where it can't be read."""
    file = str(path)
    try:
        if not pipes and not (stat.S_ISREG(mode := path.stat().st_mode) or stat.S_ISDIR(mode)):
            raise complaint(file, None, "is a pipe or a device, which is read once, at the start", "name a file")
        with path.open("rb") as stream:
            data = stream.read(LARGEST + 1)
    except FileNotFoundError:
        raise complaint(file, None, "there is no such file", _neighbours(path)) from None
    except IsADirectoryError:
        raise complaint(file, None, "is a directory", "name the file in it, e.g. cluster.yaml") from None
    except PermissionError:
        raise complaint(file, None, "may not be read by this user", "chmod it, or run as its owner") from None
    except (OSError, ValueError) as error:
        raise complaint(file, None, f"can't be read ({error})", "name a readable YAML file") from None
    if len(data) > LARGEST:
        raise complaint(file, None, f"is larger than {LARGEST // 2**20} MiB", "is it the right file?")
    return data


def _text(file: str, data: bytes) -> str:
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise complaint(file, None, "is UTF-16", "save it as UTF-8")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        bad = data[error.start]
        raise complaint(file, line, f"is not UTF-8 (byte 0x{bad:02x})", "save it as UTF-8") from None


def _neighbours(path: FilePath) -> str:
    """Advice for a missing file: the YAML files that stand where it should."""
    try:
        found = sorted(one.name for one in path.parent.iterdir() if one.suffix in {".yaml", ".yml"})[:5]
    except OSError:
        return f"there is no directory {path.parent} either"
    return f"{path.parent} has {', '.join(found)}" if found else "check the name, or write one: see examples/"
