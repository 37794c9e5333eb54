"""All keys of a running gateway: several sources looked at once a second, merged, handed over as an `Access`."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Protocol

from kilocard.core.errors import KilocardError
from kilocard.spec.model import TenantSpec
from kilocard.tenancy.access import Access, Verified
from kilocard.tenancy.keys import Key, Source, cluster_keys, merged

log = logging.getLogger("kilocard.keys")

#: seconds between two looks at a source
EVERY = 1.0
#: seconds between two looks at the clock for what has expired
TICK = 0.1


class KeySource(Protocol):
    """A place that keys come from; `look` runs in a thread, one call at a time."""

    #: for metrics, from a closed list
    name: str
    #: for people
    place: str

    def look(self) -> tuple[Key, ...] | None:
        """All keys if they have changed, else None. Raises KilocardError while something is wrong."""

    def close(self) -> None: ...


class Tokens(Protocol):
    """Who knows whose an identity provider's tokens are."""

    def verify(self, token: bytes) -> Verified:
        """Raises Unauthorized, Forbidden, CapacityError."""

    def source(self) -> Source: ...
    async def start(self, tenants: Mapping[str, TenantSpec], changed: Callable[[], None]) -> None: ...
    def declare(self, tenants: Mapping[str, TenantSpec]) -> None: ...
    async def close(self) -> None: ...


class _Followed:
    """One source, and what it said last."""

    def __init__(self, source: KeySource) -> None:
        self.source = source
        self.keys: tuple[Key, ...] = ()
        self.problem: str | None = None
        #: loop time
        self.well_at: float | None = None

    async def look(self) -> bool:
        """Whether its keys have changed. What is wrong is logged once for each cause; its last keys stay."""
        try:
            keys = await asyncio.to_thread(self.source.look)
        except Exception as error:  # whatever it is: a source must not end the gateway's knowledge of keys
            problem = error.message if isinstance(error, KilocardError) else f"{type(error).__name__}, a fault"
            if problem != self.problem:
                self.problem = problem
                known = _count(self.keys)
                log.warning("%s: %s (its %d known key(s) go on working)", self.source.place, problem, known)
            return False
        if self.problem is not None:
            self.problem = None
            log.info("%s: works again", self.source.place)
        self.well_at = asyncio.get_running_loop().time()
        if keys is None:
            return False
        self.keys = keys
        return True


def wall_clock() -> float:
    """Unix time: keys and tokens expire by it."""
    return datetime.now(UTC).timestamp()


class KeyRing:
    """Follows sources from `start` to `close`; `swap` gets another Access whenever something has changed.

    A source that fails changes nothing: what it said last goes on counting. At a start with a failing source the
    others' keys count, and the log says so.
    """

    def __init__(
        self,
        tenants: Mapping[str, TenantSpec],
        sources: Sequence[KeySource],
        swap: Callable[[Access], None],
        *,
        tokens: Tokens | None = None,
        wall: Callable[[], float] = wall_clock,
    ) -> None:
        self._tenants = tenants
        self._followed = [_Followed(source) for source in sources]
        self._swap = swap
        self._tokens = tokens
        self._wall = wall
        self._tasks: list[asyncio.Task[None]] = []
        self._access = Access(tenants)
        self._expires: float | None = None
        #: keys that let somebody in now
        self._good = 0
        self._said: tuple[list[str], int] = ([], 0)

    async def start(self) -> None:
        """Every source has been looked at once when this returns, whatever came of it."""
        await asyncio.gather(*(one.look() for one in self._followed))
        if self._tokens is not None:
            await self._tokens.start(self._tenants, self._build)
        self._build()
        if self._tenants and not self._good and self._tokens is None:
            log.warning(
                "There are tenants and no key of any of them: nobody can use this gateway. "
                "`kilocard keys create TENANT` makes a key."
            )
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(self._follow(one)) for one in self._followed]
        self._tasks.append(loop.create_task(self._watch_the_clock()))

    async def close(self) -> None:
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._tokens is not None:
            await self._tokens.close()
        for one in self._followed:
            one.source.close()

    def declare(self, tenants: Mapping[str, TenantSpec]) -> None:
        """The cluster file has changed: other tenants, other keys in it."""
        self._tenants = tenants
        if self._tokens is not None:
            self._tokens.declare(tenants)
        self._build()

    def sources(self) -> list[Source]:
        """How each source is doing now."""
        now = asyncio.get_running_loop().time()
        declared = self._tenants
        found = [Source("cluster", sum(len(tenant.keys) for tenant in declared.values()), None, 0.0)]
        for one in self._followed:
            count = _count(key for key in one.keys if key.tenant in declared)
            age = None if one.well_at is None else now - one.well_at
            found.append(Source(one.source.name, count, one.problem, age))
        return found if self._tokens is None else [*found, self._tokens.source()]

    # -- inside

    async def _follow(self, one: _Followed) -> None:
        while True:
            await asyncio.sleep(EVERY)
            if await one.look():
                log.info("%s has changed: %d key(s) in it", one.source.place, _count(one.keys))
                self._build()

    async def _watch_the_clock(self) -> None:
        while True:
            await asyncio.sleep(TICK)
            now = self._wall()
            self._access.forget_expired(now)
            if self._expires is not None and now >= self._expires:
                self._build()

    def _build(self) -> None:
        """Another Access out of what is known now."""
        tenants = self._tenants
        keys = merged(tenants, [list(cluster_keys(tenants)), *(one.keys for one in self._followed)], self._wall())
        self._expires, self._good = keys.expires, len(keys.tenants)
        said = (keys.undeclared, keys.contested)
        if said != self._said:
            self._said = said
            if keys.undeclared and tenants:  # an open gateway asks for no keys at all
                log.warning(
                    "keys of tenants that the cluster file does not declare are ignored: %s", _few(keys.undeclared)
                )
            if keys.contested:
                log.warning(
                    "%d key(s) stand for two tenants: the cluster file's word counts, then the keys file's",
                    keys.contested,
                )
        self._access = Access(tenants, keys.tenants, None if self._tokens is None else self._tokens.verify)
        self._swap(self._access)


def _count(keys: Iterable[Key]) -> int:
    return sum(not key.revoked for key in keys)


def _few(names: list[str]) -> str:
    return ", ".join(names[:10]) + (f" and {len(names) - 10} more" if len(names) > 10 else "")
