"""The keys of `ray:`."""

from __future__ import annotations

from kilocard.spec.kinds import SIZE, Text, Whole
from kilocard.spec.ray import RaySpec
from kilocard.spec.sections import Key, Section

_ADDRESS = Text(pattern=r"auto|[^\s:/]+:\d{1,5}", advice="write host:port of the head, or auto", label="host:port")
_HOST_PORT = Text(pattern=r"[^\s:/]+:\d{1,5}", advice="write host:port", label="host:port")
_NAME = Text(pattern=r"[A-Za-z0-9][A-Za-z0-9_-]*", advice="use letters, digits, _ and -", label="name", longest=63)
_CARD = Text(pattern=r"[A-Za-z0-9_.@-]{1,15}", advice="write a card's name, as `ip link` lists it", label="name")
_VERSION = Text(pattern=r"\d+\.\d+\.\d+", advice="write three numbers: 2.60.0", label="x.y.z")

RAY = Section(
    RaySpec(),
    "The Ray cluster of the backend `ray` and of `kilocard render ray`.",
    (
        Key("address", _ADDRESS, "Its head. `auto`: of the cluster that this machine is part of, or RAY_ADDRESS."),
        Key("namespace", _NAME, "Parts this file's replicas from those of others on the same Ray cluster."),
        Key("port", Whole(1, 65535), "Where the head listens."),
        Key("image", Text(), "Image with Ray, kilocard and the engines in it.", default="`kilocard-ray:VERSION`"),
        Key("version", _VERSION, "Ray's version in that image."),
        Key(
            "interface",
            _CARD,
            "Network card for what nodes say to each other (NCCL, Gloo).",
            default="the one with the node's address",
        ),
        Key("object_store", SIZE, "Ray's shared memory on each node. Nothing of a request goes through it."),
        Key("redis", _HOST_PORT, "Redis that keeps what the head knows. Without, all nodes end when the head dies."),
    ),
    "Ray",
)
