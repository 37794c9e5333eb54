"""The cluster file is read again: on a signal, on request, and when it has changed.

    reload()      read, judge as a whole, take over in one step; raises where it is bad, and then nothing has changed
    look()        about once a second: has the content changed, and has it lain still for two looks? then reload()

Content is compared, not times: whatever replaces a file (an editor's rename, a ConfigMap's symbolic link, a slow copy)
ends in other bytes under the same name.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import NamedTuple

from kilocard.core.errors import KilocardError
from kilocard.gateway.config_status import ConfigStatus
from kilocard.gateway.stillness import Stillness
from kilocard.spec.load import Digests, digests_of
from kilocard.spec.model import ClusterSpec

log = logging.getLogger("kilocard.gateway")

#: seconds between two looks at the files
EVERY = 1.0


class Reloaded(NamedTuple):
    """Paths of keys, as in messages of the parser: what has changed, and what keeps its old value until a restart."""

    changed: Sequence[str]
    restart: Sequence[str]


class Reloader:
    """`read(digests)` gives the cluster or raises; what it opens, it notes in `digests` (see spec.load). It runs in a
    thread, since files may lie on a network disk. `apply` takes the cluster over.
    """

    def __init__(
        self,
        status: ConfigStatus,
        read: Callable[[Digests], ClusterSpec],
        apply: Callable[[ClusterSpec], Awaitable[Reloaded]],
        digests: Mapping[str, str],
    ) -> None:
        """`digests`: of the files as they were read at the start."""
        self.status = status
        status.file = next(iter(digests), None)
        status.hash = _short(digests)
        self._read = read
        self._apply = apply
        #: as last read, good or bad
        self._files: Stillness[Digests] = Stillness(dict(digests))
        self._complained_of: Digests | None = None
        self._one_at_a_time = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None
        self._asked: set[asyncio.Task[None]] = set()

    def watch(self) -> None:
        """Begin to look, in the running event loop."""
        self._task = asyncio.get_running_loop().create_task(self._watch(), name="cluster file")

    async def close(self) -> None:
        tasks = [*self._asked, *([self._task] if self._task else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def ask(self) -> None:
        """Reload soon; errors go to the log. For signal handlers."""
        task = asyncio.get_running_loop().create_task(self._quietly(), name="reload")
        self._asked.add(task)
        task.add_done_callback(self._asked.discard)

    async def reload(self) -> Reloaded:
        """Raises SpecError and whatever else `read` refuses with; then nothing has changed."""
        async with self._one_at_a_time:
            status = self.status
            digests: Digests = {}
            try:
                try:
                    spec = await asyncio.to_thread(self._read, digests)
                finally:
                    self._files.take(digests)
                done = await self._apply(spec)
            except KilocardError as error:
                self._refused(digests, str(error))
                raise
            except Exception:
                log.exception("the cluster file can't be taken over")
                self._refused(digests, "unexpected error, see the log")
                raise
            status.took_over(_short(digests), list(done.restart), changed=bool(done.changed))
            if done.changed:
                log.info("cluster file taken over (generation %d): %s", status.generation, _list(done.changed))
            for key in done.restart:
                log.warning("%s has changed in the cluster file and needs a restart; its old value stays", key)
            return done

    def _refused(self, digests: Digests, error: str) -> None:
        self.status.refused(error)
        if digests != self._complained_of:  # once for each content, however often it is asked for
            self._complained_of = digests
            log.error("the cluster file is not taken over, the running one stays in force:\n%s", error)

    async def look(self) -> None:
        """Reload if the content is new and the same as at the last look."""
        if self._files.news(await asyncio.to_thread(digests_of, list(self._files.known))):
            await self._quietly()

    async def _quietly(self) -> None:
        try:
            await self.reload()
        except Exception:  # reload has said it
            return

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(EVERY)
            await self.look()


def _short(digests: Mapping[str, str]) -> str:
    """One word for the content of all files."""
    return hashlib.sha256("".join(digests.values()).encode()).hexdigest()[:12]


def _list(paths: Sequence[str], most: int = 20) -> str:
    more = f" and {len(paths) - most} more" if len(paths) > most else ""
    return ", ".join(paths[:most]) + more
