"""Replicas that a controller in another process keeps: it tells all of them each second, and this is what changed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kilocard.core.replica import Change, Endpoint, Found, Leaving, Lost
from kilocard.core.roll import Roll, RollEntry


class Told:
    """`report` hears of replicas as from any other source. Nothing is forgotten when the controller falls silent."""

    def __init__(self, report: Callable[[Change], None]) -> None:
        self._report = report
        self._found: dict[str, Endpoint] = {}
        self._leaving: set[str] = set()
        self.roll: Roll | None = None

    def take(self, roll: Roll) -> None:
        """This is the whole of it now."""
        self.roll = roll
        there = {entry.id: entry for entry in roll.replicas if entry.url is not None and (entry.serves or entry.leaves)}
        for replica in [replica for replica in self._found if replica not in there]:
            del self._found[replica]
            self._leaving.discard(replica)
            self._report(Lost(replica, "the controller has it no more"))
        for entry in there.values():
            self._hear(entry)

    def _hear(self, entry: RollEntry) -> None:
        assert entry.url is not None
        endpoint = Endpoint(entry.id, entry.pool, entry.url)
        if entry.leaves:
            if entry.id in self._found and entry.id not in self._leaving:
                self._leaving.add(entry.id)
                self._report(Leaving(entry.id, entry.reason))
            return  # one that was never heard of has nothing here that could end
        if self._found.get(entry.id) != endpoint or entry.id in self._leaving:
            self._found[entry.id] = endpoint
            self._leaving.discard(entry.id)
            self._report(Found(endpoint))

    def scaling(self) -> dict[str, Any] | None:
        """What GET /scaling shows; None: nobody has told."""
        return None if self.roll is None else self.roll.scaling

    def describe(self) -> dict[str, dict[str, Any]]:
        """Rows for /state, by replica."""
        if self.roll is None:
            return {}
        return {
            entry.id: {
                "pool": entry.pool, "state": entry.state, "url": entry.url, "reason": entry.reason,
                "restarts": entry.restarts,
            }
            for entry in self.roll.replicas
        }  # fmt: skip
