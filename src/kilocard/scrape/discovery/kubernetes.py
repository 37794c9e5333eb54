"""Replicas behind a Kubernetes Service, from its EndpointSlices by list and watch.

Needs get, list and watch on endpointslices.discovery.k8s.io in the namespace. What the events mean is in
`scrape/watch.py`.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable
from contextlib import aclosing

from kilocard.core.errors import UpstreamError
from kilocard.core.replica import Change
from kilocard.net.kubernetes_api import ApiServer
from kilocard.scrape.backoff import Backoff
from kilocard.scrape.discovery.source import Repeating, Report
from kilocard.scrape.watch import List, SliceWatch, Watch

#: seconds for a list, and for a watch's head
ANSWER = 15.0
#: the server is asked to end each watch after this long (s, up to half more by chance): a connection that died in
#: silence is noticed by then
WATCH = 60.0
#: grace for that end to arrive
LATE = 10.0
#: a watch that lived this long (s) was no failure
LIVED = 5.0


class KubernetesDiscovery:
    """`port` is the name or number of the service's port; None: its first one. Replica ids are pool/pod-name.

    An API server that is away, refuses or answers nonsense changes nothing: the replicas stay as they were.
    """

    def __init__(
        self,
        pool: str,
        service: str,
        *,
        api: ApiServer,
        rng: random.Random,
        namespace: str | None = None,
        port: str | int | None = None,
    ) -> None:
        space = namespace or api.access.namespace
        self.name = f"Kubernetes service {space}/{service} of pool {pool}"
        self._api = api
        self._path = f"/apis/discovery.k8s.io/v1/namespaces/{space}/endpointslices"
        self._query = {"labelSelector": f"kubernetes.io/service-name={service}"}
        self._rng = rng
        self._watch = SliceWatch(pool, port)
        self._backoff = Backoff(rng, first=0.1, longest=30.0)
        self._report: Report | None = None
        self._loop = Repeating(self.name, self._step, self._backoff.failed)

    @property
    def problem(self) -> str | None:
        return self._loop.problem

    def start(self, report: Report) -> None:
        self._report = report
        self._loop.start()

    async def close(self) -> None:
        await self._loop.close()
        await self._api.close()

    async def _step(self) -> float:
        step = self._watch.next()
        if isinstance(step, List):
            await self._list()
            return 0.0
        await self._follow(step)
        return self._backoff.failed()

    async def _list(self) -> None:
        answer = await self._api.get(self._path, self._query, seconds=ANSWER)
        changes = self._watch.listed(asyncio.get_running_loop().time(), answer)
        if changes is None:
            raise UpstreamError(f"{self._api.access.url}{self._path}: not an EndpointSliceList", code="protocol")
        self._tell(changes)
        self._loop.trouble(None if answer.get("items") else "the service has no EndpointSlice: does it exist?")

    async def _follow(self, step: Watch) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        lasts = int(WATCH * (1 + self._rng.random() / 2))
        query = {
            **self._query,
            "resourceVersion": step.resource_version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(lasts),
        }
        events = self._api.watch(self._path, query, seconds=ANSWER, idle=lasts + LATE)
        try:
            async with aclosing(events):
                async for event in events:
                    self._tell(self._watch.event(loop.time(), event))
                    if isinstance(self._watch.next(), List):
                        return
            self._watch.ended(clean=True)
        except UpstreamError as error:
            if error.code == "gone":
                self._watch.gone()
                return
            self._watch.ended(clean=False)
            raise
        finally:
            if loop.time() - began >= LIVED:
                self._backoff.worked()

    def _tell(self, changes: Iterable[Change]) -> None:
        assert self._report is not None
        for change in changes:
            self._report(change)
