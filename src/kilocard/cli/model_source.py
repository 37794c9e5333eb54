"""MODEL of a command line: a config.json, a folder with one, or a built-in name → its architecture."""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path
from typing import Any

from kilocard.core.errors import SpecError, UsageError
from kilocard.perf.architecture import Architecture
from kilocard.perf.catalogue import find
from kilocard.perf.read_config import read_architecture
from kilocard.perf.shape_entry import completed

CONFIG = "config.json"
#: headers are a few megabytes at most; more is no safetensors file
LONGEST_HEADER = 100 * 2**20


@dataclass(frozen=True, slots=True)
class ModelSource:
    """`told` says in words where the shape comes from."""

    architecture: Architecture
    told: str


def model_source(text: str) -> ModelSource:
    """Raises UsageError when nothing of that name is there, SpecError when a config can't be used."""
    path = Path(text).expanduser()
    if path.is_dir():
        return _from_folder(path)
    if path.exists():  # a file, or a pipe: <(curl …)
        config = completed(_read(path), builtin_models())
        name = _name_of(path) if path.is_file() else ""  # a pipe has none: the config's own
        return ModelSource(read_architecture(config, name=name), str(path))
    if path.suffix == ".json" or text.startswith((".", "/", "~")):
        raise UsageError(f"no file or folder {text!r}")
    found = find(text, builtin_models())
    return ModelSource(found.architecture, f"built-in shape {found.entry} ({found.source})")


def builtin_models() -> Mapping[str, Mapping[str, Any]]:
    """Shapes that come with kilocard, by name."""
    data = json.loads(resources.files("kilocard.perf").joinpath("models.json").read_text(encoding="utf-8"))
    models: Mapping[str, Mapping[str, Any]] = data["models"]
    return models


def _from_folder(folder: Path) -> ModelSource:
    path = folder / CONFIG
    if not path.is_file():
        raise UsageError(f"{folder} has no {CONFIG}")
    architecture = read_architecture(_read(path), name=folder.resolve().name)
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        return ModelSource(architecture, str(path))
    stored = sum(size for file in files for name, size in _tensors(file) if _is_loaded(name, architecture))
    told = f"{path} and the headers of {len(files)} safetensors files ({stored / 2**30:.2f} GiB)"
    return ModelSource(replace(architecture, stored_bytes=stored), told)


def _name_of(path: Path) -> str:
    return path.resolve().parent.name if path.name == CONFIG else path.stem


def _read(path: Path) -> Mapping[str, Any]:
    try:
        config = json.loads(path.read_text(encoding="utf-8-sig"))
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise SpecError(f"{path}: not a readable JSON file: {error}") from error
    if not isinstance(config, dict):
        raise SpecError(f"{path}: a JSON object was expected, this is a {type(config).__name__}")
    return config


def _tensors(path: Path) -> Iterator[tuple[str, int]]:
    """Names and bytes of the tensors of a safetensors file, from its header alone."""
    try:
        with path.open("rb") as file:
            (length,) = struct.unpack("<Q", file.read(8))
            if length > LONGEST_HEADER:
                raise SpecError(f"{path}: a header of {length:,} bytes: not a safetensors file")
            header = json.loads(file.read(length))
        for name, entry in header.items():
            if name != "__metadata__":
                start, end = entry["data_offsets"]
                yield name, end - start
    except (OSError, struct.error, ValueError, KeyError, TypeError, AttributeError) as error:
        raise SpecError(f"{path}: its header can't be read: {error}") from error


def _is_loaded(name: str, architecture: Architecture) -> bool:
    """Layers for multi-token prediction are in the file and not in memory."""
    layer = re.search(r"(?:^|\.)layers\.(\d+)\.", name)
    return not name.startswith("mtp.") and (layer is None or int(layer[1]) < architecture.layers)
