"""Replicas that a file names; the file is read again when it changes."""

from __future__ import annotations

import asyncio
import stat
from collections.abc import Collection
from pathlib import Path

from kilocard.core.errors import SpecError
from kilocard.scrape.discovery.endpoints_file import read_endpoints
from kilocard.scrape.discovery.source import Repeating, Report
from kilocard.scrape.roster import Roster

_Stamp = tuple[int, int, int]


class FileDiscovery:
    """`pool: [http://host:port, …]`, looked at every `every` seconds.

    A file that is missing, half written or wrong changes nothing and is a `problem` until it is right again. A
    replica that is no longer named is Leaving, and Lost `grace` seconds later. Replace the file by renaming
    another one over it (as a ConfigMap mount does): then it is never seen half written.
    """

    def __init__(self, path: str | Path, pools: Collection[str], *, every: float = 1.0, grace: float = 120.0) -> None:
        self.name = f"endpoints file {path}"
        self._path, self._pools, self._every = Path(path), pools, every
        self._roster = Roster(grace)
        self._seen: _Stamp | None = None
        self._report: Report | None = None
        self._loop = Repeating(self.name, self._step, lambda: every)

    @property
    def problem(self) -> str | None:
        return self._loop.problem

    def start(self, report: Report) -> None:
        self._report = report
        self._loop.start()

    async def close(self) -> None:
        await self._loop.close()

    async def _step(self) -> float:
        assert self._report is not None
        now = asyncio.get_running_loop().time()
        gone = f"no longer in {self._path.name}"
        for change in self._roster.expire(now, gone):
            self._report(change)
        # in a thread: the file may lie on a network disk
        stamp, text = await asyncio.to_thread(self._read)
        if text is None:
            return self._every
        self._seen = stamp  # a bad file is not read again before it changes
        endpoints = read_endpoints(text, self._pools, str(self._path))
        self._loop.trouble(None)
        for change in self._roster.update(now, endpoints, {}, gone):
            self._report(change)
        return self._every

    def _read(self) -> tuple[_Stamp, str | None]:
        """The file's stamp and, if it changed and lay still while it was read, its text."""
        try:
            before = self._stamp()
            if before == self._seen:
                return before, None
            text = self._path.read_text("utf-8")
            return before, text if self._stamp() == before else None
        except (OSError, UnicodeDecodeError) as error:
            self._seen = None
            why = getattr(error, "strerror", None) or str(error)
            raise SpecError(f"{self._path} can't be read: {why}") from error

    def _stamp(self) -> _Stamp:
        info = self._path.stat()
        if not stat.S_ISREG(info.st_mode):  # to open a pipe may take for ever, and a device never ends
            raise OSError("it is no regular file")
        return info.st_mtime_ns, info.st_size, info.st_ino
