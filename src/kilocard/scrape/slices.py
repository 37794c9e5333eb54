"""One EndpointSlice → the replicas in it. Pure; odd parts are left out, never guessed.

Field meanings: Kubernetes API reference, discovery.k8s.io/v1 EndpointSlice.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Any, NamedTuple


class State(Enum):
    """Of an endpoint; the value is the reason that is told. The order is the order of preference."""

    READY = "ready"
    TERMINATING = "terminating"
    NOT_READY = "not ready"


_PREFERENCE = {State.READY: 0, State.TERMINATING: 1, State.NOT_READY: 2}


class Member(NamedTuple):
    replica: str
    url: str
    state: State
    #: IPv4 is preferred where a pod has both
    family: int


def members(piece: Mapping[str, Any], pool: str, port: str | int | None, scheme: str = "http") -> list[Member]:
    """The replicas of one slice. A pod's replica id is pool/pod-name; an endpoint without a pod is pool/host:port."""
    family = {"IPv4": 4, "IPv6": 6}.get(str(piece.get("addressType")))
    number = _port(piece.get("ports"), port)
    if family is None or number is None:
        return []
    found = []
    for endpoint in _mappings(piece.get("endpoints")):
        addresses = endpoint.get("addresses")
        if not isinstance(addresses, list) or not addresses or not isinstance(addresses[0], str):
            continue
        # one address per endpoint is what is meant: "consumers should not use more than the first"
        host = f"[{addresses[0]}]" if family == 6 else addresses[0]
        target = endpoint.get("targetRef")
        name = target.get("name") if isinstance(target, Mapping) and target.get("kind") == "Pod" else None
        replica = f"{pool}/{name}" if name else f"{pool}/{host}:{number}"
        found.append(Member(replica, f"{scheme}://{host}:{number}", _state(endpoint.get("conditions")), family))
    return found


def best(slices: Iterable[Iterable[Member]]) -> dict[str, Member]:
    """One member per replica: an endpoint may stand in two slices for a while, and in one per address family."""
    chosen: dict[str, Member] = {}
    for piece in slices:
        for member in piece:
            rival = chosen.get(member.replica)
            if rival is None or _rank(member) < _rank(rival):
                chosen[member.replica] = member
    return chosen


def _rank(member: Member) -> tuple[int, int, str]:
    return _PREFERENCE[member.state], member.family, member.url


def _state(conditions: object) -> State:
    """`ready` missing or null counts as true; a terminating endpoint is leaving even if it still serves."""
    known = conditions if isinstance(conditions, Mapping) else {}
    if known.get("terminating") is True:
        return State.TERMINATING
    return State.NOT_READY if known.get("ready") is False else State.READY


def _port(ports: object, wanted: str | int | None) -> int | None:
    if isinstance(wanted, int):
        return wanted
    for port in _mappings(ports):
        number = port.get("port")
        if isinstance(number, int) and port.get("protocol", "TCP") == "TCP" and wanted in (None, port.get("name")):
            return number
    return None


def _mappings(items: object) -> list[Mapping[str, Any]]:
    return [item for item in items if isinstance(item, Mapping)] if isinstance(items, list) else []
