"""What a render target is: a name, a line for people, and a pure function from a cluster file to files."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kilocard.spec.model import ClusterSpec

#: path relative to the output folder (with /) → text, which ends with a newline
Files = dict[str, str]


@dataclass(frozen=True, slots=True)
class RenderOptions:
    """What belongs to one rendering and not to the cluster: the same file is rendered for several places."""

    #: version of kilocard that the rendered files run, for image tags
    version: str = "latest"


@dataclass(frozen=True, slots=True)
class Target:
    name: str
    #: one line for `kilocard render --help`
    about: str
    #: raises SpecError or UsageError for what the target can't express, never leaves it out in silence
    render: Callable[[ClusterSpec, RenderOptions], Files]
