"""What all sources of discovery have in common."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable
from typing import Protocol

from kilocard.core.errors import KilocardError
from kilocard.core.replica import Change, Endpoint
from kilocard.net.target import parse_target

Report = Callable[[Change], None]

#: wait after an error that a source did not expect of itself, seconds
AFTER_BUG = 5.0
#: seconds between two log lines about one cause at one source
QUIET = 60.0
#: what differs between two messages of the same cause: queries of URLs, versions, counts
_VARIABLE = re.compile(r"\?\S*|\d+")

log = logging.getLogger("kilocard.discovery")


class Discovery(Protocol):
    """`report` is called from the event loop, from start() or later, once for each change."""

    #: for logs and status pages
    name: str

    @property
    def problem(self) -> str | None:
        """Why the source can't be read now (what was known stays); None: all is well."""

    def start(self, report: Report) -> None:
        """Begin, in the running event loop."""

    async def close(self) -> None: ...


def endpoint_at(pool: str, url: str) -> Endpoint:
    """The replica at http://host:port; its id is pool/host:port."""
    target = parse_target(url)
    host = f"[{target.host}]" if ":" in target.host else target.host
    return Endpoint(f"{pool}/{host}:{target.port}", pool, f"{target.scheme}://{host}:{target.port}")


class Repeating:
    """Runs `step` again and again until closed; `step` says after how many seconds. It never dies of an error.

    KilocardErrors are troubles of the source.
    """

    def __init__(self, name: str, step: Callable[[], Awaitable[float]], after_error: Callable[[], float]) -> None:
        self.problem: str | None = None
        self._name = name
        self._step = step
        self._after_error = after_error
        self._task: asyncio.Task[None] | None = None
        self._told: dict[str, float] = {}
        self._loud = False  # is the present trouble in the log?

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run(), name=f"discovery {self._name}")

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
            self._task = None

    def trouble(self, what: str | None) -> None:
        """Note a trouble, or that there is none. A cause is logged once in QUIET s, its end if it was logged."""
        if what == self.problem:
            return
        self.problem = what
        now = asyncio.get_running_loop().time()
        self._told = {cause: when for cause, when in self._told.items() if now - when < QUIET}
        if what is None:
            if self._loud:
                log.info("%s: works again", self._name)
            self._loud = False
            return
        cause = _VARIABLE.sub("", what)
        if cause not in self._told:
            self._told[cause] = now
            self._loud = True
            log.warning("%s: %s", self._name, what)

    async def _run(self) -> None:
        while True:
            try:
                pause = await self._step()
            except KilocardError as error:
                self.trouble(f"{error} (replicas stay as they were)")
                pause = self._after_error()
            except Exception:
                # a source that dies in silence is the worst of all: say it loudly and go on
                log.exception("%s: unexpected error, trying again in %g s", self._name, AFTER_BUG)
                self.problem = "unexpected error, see the log"
                pause = AFTER_BUG
            await asyncio.sleep(pause)
