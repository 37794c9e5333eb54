"""The sources of discovery that run now, and what each has found: changed by difference when the cluster file is."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Mapping

from kilocard.core.replica import Change, Found, Leaving
from kilocard.scrape.discovery.source import Discovery
from kilocard.spec.model import ClusterSpec

#: sources by what they look at: equal keys are the same source
Wanted = Mapping[Hashable, Discovery]


def nowhere(spec: ClusterSpec) -> Wanted:
    """No sources: somebody else tells where replicas are."""
    return {}


class Sources:
    """`report` hears what sources tell, `depart` of replicas whose source is no longer wanted."""

    def __init__(self, report: Callable[[Change], None], depart: Callable[[str], None]) -> None:
        self._report = report
        self._depart = depart
        self._running: dict[Hashable, Discovery] = {}
        self._found: dict[Hashable, set[str]] = {}
        self._closing: set[asyncio.Task[None]] = set()

    def follow(self, wanted: Wanted) -> None:
        """From now on these: known ones go on, new ones start, the others end. What only those had found departs, after
        the new ones have had their say."""
        ended = [key for key in self._running if key not in wanted]
        lost: set[str] = set()
        for key in ended:
            lost |= self._found.pop(key)
            task = asyncio.get_running_loop().create_task(self._running.pop(key).close())
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)
        for key, source in wanted.items():
            if key not in self._running:
                self._running[key] = source
                self._found[key] = set()
                source.start(self._listener(key))
        for replica in sorted(lost.difference(*self._found.values())):
            self._depart(replica)

    async def close(self) -> None:
        for source in self._running.values():
            await source.close()
        await asyncio.gather(*self._closing, return_exceptions=True)

    def _listener(self, key: Hashable) -> Callable[[Change], None]:
        found = self._found[key]

        def listen(change: Change) -> None:
            if self._found.get(key) is not found:
                return  # last words of a source that has been ended: its replicas have departed
            if isinstance(change, Found):
                found.add(change.endpoint.replica)
            elif not isinstance(change, Leaving):
                found.discard(change.replica)
            self._report(change)

        return listen
