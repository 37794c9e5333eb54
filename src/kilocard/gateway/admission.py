"""The door for replicas that a source has found: let in once they answer.

Discovery says where a replica is, not that it can serve: one that is loading refuses connections or says 503. Waiting
for the first answer keeps /readyz honest and spares requests the first failures. Where the engine lists what it serves,
the models have to be in that list: engines answer their health page before the model, or an adapter, is loaded. Only
that is waited for; afterwards using the replica tells how it is.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from kilocard.core.errors import UpstreamError
from kilocard.core.replica import Change, Found
from kilocard.engines.model_list import MODELS_PATH, missing_models, wanted_models
from kilocard.engines.registry import engine
from kilocard.net.client import fetch
from kilocard.spec.model import ClusterSpec

log = logging.getLogger("kilocard.gateway")

#: seconds between two questions, and for one answer
EVERY = 0.5
PATIENCE = 5.0
#: a replica that is not answering is worth a line in the log again after this many questions
SAY_AGAIN = 60
_WANTS_KEY = frozenset({401, 403})


class Admission:
    """Stands between sources and `apply`."""

    def __init__(self, spec: ClusterSpec, apply: Callable[[Change], None]) -> None:
        self.spec = spec
        self._apply = apply
        self._waiting: dict[str, asyncio.Task[None]] = {}
        #: what `describe` says of those that wait
        self._rows: dict[str, dict[str, Any]] = {}
        self._let_in: dict[str, str] = {}
        self._loop: asyncio.AbstractEventLoop | None = None

    def start(self) -> None:
        self._loop = asyncio.get_running_loop()

    async def close(self) -> None:
        tasks = list(self._waiting.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def apply(self, change: Change) -> None:
        """News from a source."""
        if isinstance(change, Found):
            replica, _, url = change.endpoint
            if self._let_in.get(replica) == url:
                self._apply(change)
                return
            self.forget(replica)
            assert self._loop is not None, "start() first"
            self._rows[replica] = _row(change, "it was not asked yet")
            self._waiting[replica] = self._loop.create_task(self._wait(change))
        else:
            waited = change.replica in self._waiting
            self.forget(change.replica)
            if not waited:
                self._apply(change)

    def forget(self, replica: str) -> None:
        """Nothing is known of it any more: not that it answered, nor that it is waited for."""
        self._let_in.pop(replica, None)
        self._rows.pop(replica, None)
        task = self._waiting.pop(replica, None)
        if task is not None:
            task.cancel()

    def describe(self, known: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
        """Rows for /state: `known`, by replica, and of those that were not let in yet why not."""
        return known | {replica: known.get(replica, {}) | row for replica, row in self._rows.items()}

    async def _wait(self, found: Found) -> None:
        replica, pool_name, url = found.endpoint
        asked = 0
        while True:
            why, status = await _ask(url, *self._conditions(pool_name))
            if not why:
                break
            if asked % SAY_AGAIN == 0:
                log.warning("replica %s is not let in yet: %s", replica, why)
            asked += 1
            self._rows[replica] = _row(found, why)
            await asyncio.sleep(EVERY)
        if status in _WANTS_KEY and self.spec.tenants:
            log.warning(
                "replica %s asks for a key of its own (%d at %s). A gateway with tenants passes no keys on, so that "
                "replica will refuse every request: start its engine without a key",
                replica, status, MODELS_PATH,
            )  # fmt: skip
        del self._waiting[replica], self._rows[replica]
        self._let_in[replica] = url
        self._apply(found)

    def _conditions(self, pool_name: str) -> tuple[str, set[str]]:
        """The page that has to answer and the models that have to be listed, by the cluster file of now."""
        pool = self.spec.pools.get(pool_name)
        if pool is None:  # it goes with its replicas: whoever tells of that ends this wait
            return MODELS_PATH, set()
        adapter = engine(pool.engine)
        names = [model.name for model in self.spec.models.values() if pool_name in model.pools]
        return adapter.readiness_path(pool), wanted_models(adapter, pool, names)


def _row(found: Found, why: str) -> dict[str, Any]:
    _, pool, url = found.endpoint
    return {"pool": pool, "url": url, "state": "not_ready", "reason": why}


async def _ask(url: str, path: str, wanted: set[str]) -> tuple[str, int]:
    """Why it can't serve yet ("": it can), and the status of its model list, if it was asked for one. Any answer will
    do but 503 and its kin, since not every server has a readiness page or a list."""
    try:
        answer = await fetch(url + path, timeout=PATIENCE)
        if answer.status >= 500 and answer.status != 501:
            return f"{url}{path} answers {answer.status}", answer.status
        if wanted and path != MODELS_PATH:
            answer = await fetch(url + MODELS_PATH, timeout=PATIENCE)
    except UpstreamError as error:
        return error.message, 0
    return missing_models(wanted, answer.status, answer.body), answer.status
