"""What a proxy has to know that stands before gateways, or before replicas without a gateway: servers, bounds, times.

Every proxy that is rendered is made of this one description, so that they agree.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from kilocard.core.errors import UsageError
from kilocard.deploy.reachable import given, reachable
from kilocard.deploy.target import RenderOptions
from kilocard.engines.registry import engine
from kilocard.spec.model import ClusterSpec, PoolSpec
from kilocard.spec.units import Address, address

#: seconds that an idle connection to an engine is kept: less than the 5 s after which engines (uvicorn) close theirs,
#: or a request now and then meets a connection that is just being closed
ENGINE_KEEP_ALIVE = 3
#: the share of the gateway's own keep-alive for the same reason
GATEWAY_KEEP_ALIVE = 0.8
#: seconds on top of the gateway's time-outs: its own error, which says what happened, comes first
AFTER_GATEWAY = 30
#: failures in a row, and seconds without requests then, of a server that does not answer
FAILURES, REST = 2, 10
#: bytes of a request's head that Envoy takes at most; a buffer of the size for each connection is no joke elsewhere
LARGEST_HEAD = 8 * 2**20
#: seconds, 24 days: the most that HAProxy counts
LONGEST_SILENCE = 24 * 86_400
#: parts into which a pool's weight is shared out over its servers
_WEIGHTS = 100


@dataclass(frozen=True, slots=True)
class Server:
    name: str
    at: Address
    #: out of 100
    weight: int
    #: path that answers 200 while it serves
    health: str
    #: requests that it is given at once; None: no bound
    most: int | None = None
    #: the host is a name for several servers
    several: bool = False


@dataclass(frozen=True, slots=True)
class Front:
    """Durations are whole seconds, sizes bytes."""

    listen: Address
    servers: tuple[Server, ...]
    #: the servers are replicas: nothing behind this proxy knows of queues, tenants or retries
    direct: bool
    body: int
    header: int
    connect: int
    #: the longest that nothing may come from a server: the first token of a long prompt
    silence: int
    #: of idle connections to servers
    keep_alive: int

    @property
    def health(self) -> str | None:
        """The one page that all servers have; None: theirs differ, so they can only be asked whether they listen."""
        paths = {server.health for server in self.servers}
        return paths.pop() if len(paths) == 1 else None

    @property
    def comment(self) -> str:
        """What stands behind the proxy, for the head of its file."""
        if self.direct:
            return "Straight to the replicas: nothing here knows of queues, keys or limits. For tests of one pool."
        return "Before the gateway, which knows the replicas. Nothing is repeated or held here."


def front(spec: ClusterSpec, options: RenderOptions) -> Front:
    """Raises UsageError for what no proxy can do: see `_replicas`, and TLS between proxy and gateway."""
    gateway = spec.gateway
    if gateway.limits.header > LARGEST_HEAD:
        raise UsageError(
            f"gateway.limits.header is {gateway.limits.header:,} bytes, and proxies take heads of "
            f"{LARGEST_HEAD:,} at most: lower it"
        )
    if options.direct:
        servers, keep_alive, after = _replicas(spec), ENGINE_KEEP_ALIVE, 0
    else:
        if gateway.tls is not None:
            raise UsageError(
                "gateway.tls is set: a proxy in front of the gateway ends TLS itself and speaks plain HTTP to it. "
                "Render it from a cluster file without gateway.tls, and keep the gateway on a private network"
            )
        servers = _gateways(options.gateways or (gateway.listen,))
        keep_alive, after = max(1, int(gateway.limits.keep_alive * GATEWAY_KEEP_ALIVE)), AFTER_GATEWAY
    return Front(
        listen=given("--listen", options.listen),
        servers=servers,
        direct=options.direct,
        body=gateway.limits.body,
        header=gateway.limits.header,
        connect=min(max(1, ceil(gateway.timeouts.connect)), LONGEST_SILENCE),
        silence=min(ceil(gateway.timeouts.total) + after, LONGEST_SILENCE),
        keep_alive=keep_alive,
    )


def _gateways(places: tuple[str, ...]) -> tuple[Server, ...]:
    servers = []
    for number, place in enumerate(places):
        at = reachable("--gateway", "gateway.listen", place)
        servers.append(Server(f"gateway-{number}", at, _WEIGHTS, "/readyz"))
    return tuple(servers)


def _replicas(spec: ClusterSpec) -> tuple[Server, ...]:
    """Of the only model. Raises UsageError where there are several, or where kilocard would have to start them."""
    if len(spec.models) != 1:
        raise UsageError(
            f"--direct: there are {len(spec.models)} models ({', '.join(spec.models)}), and this proxy can't read "
            "which one a request wants. Put the gateway behind it (leave --direct out), or render a file with one model"
        )
    (model,) = spec.models.values()
    servers: list[Server] = []
    for name, weight in model.pools.items():
        pool = spec.pools[name]
        if weight:
            servers += _of_pool(pool, weight)
    return _scaled(servers)


def _of_pool(pool: PoolSpec, weight: int) -> list[Server]:
    health = engine(pool.engine).liveness_path(pool)
    if pool.tenants:
        raise UsageError(
            f"--direct: pool {pool.name} is {', '.join(pool.tenants)}'s alone, and this proxy knows no tenants: leave "
            "--direct out"
        )
    if pool.dns is not None:
        return [Server(pool.name, address(pool.dns), weight, health, pool.max_in_flight, several=True)]
    if not pool.endpoints:
        raise UsageError(
            f"--direct: where pool {pool.name}'s replicas are is known only when they run. Give the pool `endpoints` "
            "or `dns`, or put the gateway behind the proxy (leave --direct out)"
        )
    each = weight * _WEIGHTS // len(pool.endpoints) or 1
    return [
        Server(f"{pool.name}-{number}", address(url.removeprefix("http://")), each, health, pool.max_in_flight)
        for number, url in enumerate(pool.endpoints)
    ]


def _scaled(servers: list[Server]) -> tuple[Server, ...]:
    """The heaviest weighs 100, as proxies like it (HAProxy knows no weight above 256)."""
    most = max(server.weight for server in servers)
    return tuple(
        Server(one.name, one.at, max(1, round(one.weight * _WEIGHTS / most)), one.health, one.most, one.several)
        for one in servers
    )
