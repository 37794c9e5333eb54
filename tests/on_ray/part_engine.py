"""A fake engine whose replicas may have several parts. In a file of its own, since actors import it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from fake_engine import CAPABILITIES, FakeEngine
from kilocard.engines.base import Capabilities, Group

MULTI_NODE = replace(CAPABILITIES, group=Group(("--rank={rank}", "--size={size}", "--leader={leader}")))
VERSIONED = replace(CAPABILITIES, distribution="fakeengine")


@dataclass
class PartEngine(FakeEngine):
    """`family` and `env` of parts with a rank are written under a name with it (tests/fake_engine.py)."""

    capabilities: Capabilities = MULTI_NODE


@dataclass
class VersionedEngine(FakeEngine):
    """A program that is looked for on the node's PATH and has the version of its Python distribution."""

    program: tuple[str, ...] = ("fake-engine",)
    capabilities: Capabilities = VERSIONED
