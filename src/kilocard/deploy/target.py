"""What a render target is: a name, a line for people, and a pure function from a cluster file to files."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kilocard.spec.model import ClusterSpec

#: path relative to the output folder (with /) → text, which ends with a newline
Files = dict[str, str]

#: where a proxy listens unless it is told otherwise: 80 and 443 are other people's to give
LISTEN = "0.0.0.0:8080"


@dataclass(frozen=True, slots=True)
class RenderOptions:
    """What belongs to one rendering and not to the cluster: the same file is rendered for several places."""

    #: Kubernetes: where the objects will be, if the cluster file's `kubernetes.namespace` does not say it
    namespace: str | None = None
    #: version of kilocard that the rendered files run, for image tags
    version: str = "latest"
    #: proxies: host:port where they listen
    listen: str = LISTEN
    #: proxies: the gateways behind them, host:port; none: the cluster file's own
    gateways: tuple[str, ...] = ()
    #: Prometheus: the gateways' admin addresses, host:port; none: the cluster file's own
    admins: tuple[str, ...] = ()
    #: proxies: no gateway, the replicas themselves
    direct: bool = False


@dataclass(frozen=True, slots=True)
class Target:
    name: str
    #: one line for `kilocard render --help`
    about: str
    #: raises SpecError or UsageError for what the target can't express, never leaves it out in silence
    render: Callable[[ClusterSpec, RenderOptions], Files]
