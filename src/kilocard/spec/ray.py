"""How a Ray cluster is reached and rendered, as a frozen type; part of `spec/model.py`. Sizes are bytes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RaySpec:
    #: of the cluster, host:port of its head; "auto": the one that this machine is part of (or RAY_ADDRESS)
    address: str = "auto"
    #: parts this cluster file's replicas from those of others on the same Ray cluster
    namespace: str = "kilocard"
    #: where the head listens
    port: int = 6379
    #: image with Ray, kilocard and the engines in it; None: kilocard-ray:VERSION
    image: str | None = None
    #: Ray's version in that image
    version: str = "2.60.0"
    #: network card for what nodes say to each other; None: the one with the node's address
    interface: str | None = None
    #: Ray's shared memory on each node: nothing of a request goes through it
    object_store: int = 1024**3
    #: host:port of a Redis that keeps what the head knows; None: when the head dies, the cluster does
    redis: str | None = None
