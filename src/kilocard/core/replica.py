"""Where replicas are, and how news of them travels from discovery and backends to the gateway."""

from __future__ import annotations

from typing import NamedTuple


class Endpoint(NamedTuple):
    """One replica's address. `replica` is its id, unique in the cluster; `url` is http://host:port without a path."""

    replica: str
    pool: str
    url: str


class Found(NamedTuple):
    """The replica can serve (again). A known id with another URL means that it moved."""

    endpoint: Endpoint


class Leaving(NamedTuple):
    """It is terminating: no new requests, running ones may finish."""

    replica: str
    reason: str


class Lost(NamedTuple):
    """It is no more."""

    replica: str
    reason: str


Change = Found | Leaving | Lost
