"""EndpointSlices of one Service, by list and watch: the state machine. Pure; `discovery/kubernetes.py` does the I/O.

    step = watch.next()                       List or Watch(resource_version)
    watch.listed(now, list)           → changes, then next() is a Watch
    watch.event(now, event)           → changes; next() is a List if the event said so (410, nonsense)
    watch.ended(clean)                        next() is a List unless the server ended the watch in good order

The rules, each from a fault that others had: a watch that breaks is followed by a list, because what was deleted
meanwhile is told by nobody else; 410 Gone means list, not retry; a replica that is terminating or not ready gets no
new requests; and only a list can empty the set: if events seem to, a list is asked for first.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from kilocard.core.replica import Change, Endpoint
from kilocard.scrape.roster import Roster
from kilocard.scrape.slices import Member, State, best, members

#: watches that may be resumed one after the other before a list is due anyhow
MOST_RESUMED = 2


class List(NamedTuple):
    """Ask for all slices of the service."""

    reason: str


class Watch(NamedTuple):
    """Ask for what happened after this version."""

    resource_version: str


@dataclass(slots=True)
class SliceWatch:
    """`port`: a name or a number among the service's ports; None: the first TCP port."""

    pool: str
    port: str | int | None = None
    scheme: str = "http"
    #: lists and events that could not be understood; each is followed by a list
    misunderstood: int = 0
    _roster: Roster = field(default_factory=Roster)
    _slices: dict[str, list[Member]] = field(default_factory=dict)
    _version: str | None = None
    _why: str = "first list"
    _resumed: int = 0

    def next(self) -> List | Watch:
        return List(self._why) if self._version is None else Watch(self._version)

    def listed(self, now: float, answer: Mapping[str, Any]) -> list[Change] | None:
        """The API server's whole truth. None: it is no list (nothing changes, and a list is still wanted)."""
        items, version = answer.get("items"), _version_of(answer)
        if not isinstance(items, list) or not version:
            # `items` is null where a Go server has none; anything else is no EndpointSliceList
            if not (version and "items" in answer and items is None):
                self._misunderstand("the list was not an EndpointSliceList")
                return None
            items = []
        slices = {}
        for item in items:
            name = _name_of(item)
            if name is None:
                self._misunderstand("the list held something without a name")
                return None
            slices[name] = members(item, self.pool, self.port, self.scheme)
        self._slices = slices
        self._version, self._resumed = version, 0
        return self._publish(now)

    def event(self, now: float, event: Mapping[str, Any]) -> list[Change]:
        """One line of the watch."""
        kind, thing = event.get("type"), event.get("object")
        if self._version is None:
            return []  # the watch is over already; the list that follows knows better
        if kind == "ERROR":
            code = thing.get("code") if isinstance(thing, Mapping) else None
            self._relist("410 Gone" if code == 410 else f"the watch reported error {code}")
            return []
        version = _version_of(thing)
        if kind == "BOOKMARK" and version:
            self._version = version
            return []
        name = _name_of(thing)
        if kind not in ("ADDED", "MODIFIED", "DELETED") or not version or name is None:
            self._misunderstand(f"the watch said {kind!r} of something unknown")
            return []
        self._version = version
        if kind == "DELETED":
            self._slices.pop(name, None)
        else:
            assert isinstance(thing, Mapping)
            self._slices[name] = members(thing, self.pool, self.port, self.scheme)
        now_ready = any(member.state is State.READY for member in best(self._slices.values()).values())
        if self._roster.serving and not now_ready:
            self._relist("the last ready endpoint went away by an event")
            return []
        return self._publish(now)

    def ended(self, *, clean: bool) -> None:
        """The watch is over. `clean`: the server ended it in good order, as it does after timeoutSeconds."""
        self._resumed += 1
        if not clean:
            self._relist("the watch broke")
        elif self._resumed > MOST_RESUMED:
            self._relist("it was time")

    def gone(self) -> None:
        """The API server answered 410: our version is too old."""
        self._relist("410 Gone")

    @property
    def serving(self) -> Mapping[str, Endpoint]:
        return self._roster.serving

    def _publish(self, now: float) -> list[Change]:
        serving: dict[str, Endpoint] = {}
        leaving: dict[str, str] = {}
        for replica, member in best(self._slices.values()).items():
            if member.state is State.READY:
                serving[replica] = Endpoint(replica, self.pool, member.url)
            else:
                leaving[replica] = member.state.value
        return self._roster.update(now, serving, leaving, "no longer an endpoint of the service")

    def _relist(self, why: str) -> None:
        self._version, self._why = None, why

    def _misunderstand(self, why: str) -> None:
        self.misunderstood += 1
        self._relist(why)


def _version_of(thing: object) -> str | None:
    metadata = thing.get("metadata") if isinstance(thing, Mapping) else None
    version = metadata.get("resourceVersion") if isinstance(metadata, Mapping) else None
    return version if isinstance(version, str) and version else None


def _name_of(thing: object) -> str | None:
    metadata = thing.get("metadata") if isinstance(thing, Mapping) else None
    name = metadata.get("name") if isinstance(metadata, Mapping) else None
    return name if isinstance(name, str) and name else None
