"""What a controller must not forget when it dies: drains under way, and the timers of each pool's scaler."""

from __future__ import annotations

import contextlib
import json
import logging
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import msgspec

log = logging.getLogger("kilocard.controller")

VERSION = 1


@dataclass(frozen=True, slots=True)
class DrainUnderWay:
    """A replica that was chosen to go. `since` is in seconds since 1970."""

    pool: str
    reason: str
    since: float


@dataclass(frozen=True, slots=True)
class Memory:
    """`saved_at`: seconds since 1970. `scalers`: what Scaler.snapshot gave, by pool."""

    saved_at: float = 0.0
    drains: Mapping[str, DrainUnderWay] = field(default_factory=dict)
    scalers: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


class _Written(msgspec.Struct):
    version: int
    saved_at: float
    drains: dict[str, DrainUnderWay]
    scalers: dict[str, dict[str, Any]]


class MemoryFile:
    """One JSON file. Blocking: call it in a thread."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> Memory:
        """Nothing, where there is no file. One that is damaged is put aside and said, since serving must go on."""
        try:
            found = msgspec.json.decode(self.path.read_bytes(), type=_Written)
            if found.version != VERSION:
                raise ValueError(f"version {found.version}, this program writes {VERSION}")
            return Memory(found.saved_at, found.drains, found.scalers)
        except FileNotFoundError:
            return Memory()
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            aside = self.path.with_suffix(".damaged")
            self.path.replace(aside)
            log.error("%s can't be understood (%s): the controller begins anew; it lies in %s", self.path, error, aside)
            return Memory()

    def write(self, memory: Memory) -> None:
        """Whole or not at all, whenever the machine stops. Raises OSError."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        new = self.path.with_suffix(".new")
        text = json.dumps({"version": VERSION, **asdict(memory)})
        descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(descriptor)
            new.replace(self.path)
        except BaseException:
            with contextlib.suppress(OSError):
                new.unlink()
            raise

    def forget(self) -> None:
        """After an orderly end there is nothing to pick up."""
        with contextlib.suppress(OSError):
            self.path.unlink(missing_ok=True)
