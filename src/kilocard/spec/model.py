"""The cluster file as frozen types. Every key has a safe default; the parser fills these from YAML.

Durations are seconds, sizes bytes, unless the name says otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from kilocard.spec.deployment import KubernetesSpec, PlacementSpec, ResourcesSpec
from kilocard.spec.ray import RaySpec
from kilocard.spec.scaling import ScalingSpec
from kilocard.spec.services import AccessLogSpec, OidcSpec, RecordSpec, TlsSpec, TracingSpec, UsageSpec
from kilocard.spec.traffic import Limits as Limits
from kilocard.spec.traffic import Timeouts as Timeouts

Scalar = str | int | float | bool | None


@dataclass(frozen=True, slots=True)
class GatewaySpec:
    listen: str = "127.0.0.1:8000"
    admin: str = "127.0.0.1:8001"
    timeouts: Timeouts = Timeouts()  # noqa: RUF009  # frozen, so shared safely
    limits: Limits = Limits()  # noqa: RUF009  # same
    #: seconds between two scrapes of one replica
    scrape_interval: float = 1.0
    #: after SIGTERM: keep accepting this long with /readyz failing, so that balancers notice
    shutdown_delay: float = 0.0
    #: then running requests have this long to finish
    drain: float = 120.0
    #: SSE comment to the client after this long without a byte while a stream waits; 0 = never
    keep_alive_comment: float = 0.0
    #: serve without keys on an address that other machines reach
    allow_open: bool = False
    tls: TlsSpec | None = None
    #: the embedded store (SQLite: keys, budgets, usage); None: the default place
    store: str | None = None
    #: further hashes of keys, by tenant; followed while the gateway runs
    keys_file: str | None = None
    oidc: OidcSpec | None = None
    #: redis:// URL where several gateways share their limits; None: this gateway counts alone
    limit_store: str | None = None
    usage: UsageSpec = UsageSpec()  # noqa: RUF009  # frozen, so shared safely
    access_log: AccessLogSpec | None = None
    tracing: TracingSpec | None = None
    record: RecordSpec | None = None
    #: answer `x-kilocard-receipt` with how the request was routed
    receipts: bool = True
    #: follow changes of the cluster file
    watch: bool = True


@dataclass(frozen=True, slots=True)
class OverheatSpec:
    """过热熔断: take a replica out of routing while its own queue or KV cache is full (with hysteresis)."""

    waiting: float = 4.0
    kv_usage: float = 0.95
    #: back in when waiting ≤ this share of `waiting` and KV usage ≤ `kv_recover`
    recover: float = 0.5
    kv_recover: float = 0.85


@dataclass(frozen=True, slots=True)
class EjectSpec:
    """Take a failing replica out."""

    consecutive: int = 3
    #: or this share of failures over the last `window` seconds, with at least `minimum` requests
    error_share: float = 0.5
    window: float = 30.0
    minimum: int = 10
    backoff: float = 2.0
    backoff_max: float = 60.0
    #: never eject more than this share of a pool (at least one replica stays in)
    max_share: float = 0.5


@dataclass(frozen=True, slots=True)
class HoldSpec:
    """The hold queue of one model."""

    max: int = 1000
    timeout: float = 60.0


@dataclass(frozen=True, slots=True)
class RetrySpec:
    #: attempts in all, on different replicas, before the first content byte
    attempts: int = 3


@dataclass(frozen=True, slots=True)
class QuarantineSpec:
    """A request that was in flight when replicas died is refused for a while."""

    #: this many deaths; 0: never
    deaths: int = 2
    #: how long, and how long a death is remembered
    ttl: float = 600.0


@dataclass(frozen=True, slots=True)
class HedgeSpec:
    """A second attempt on another replica where the first token is late; whoever answers first wins."""

    #: seconds without a first token; None: the replica's own p95, once that is known
    after: float | None = None
    #: of the requests, at most this share is sent twice
    budget: float = 0.02
    #: only while less than this share of the model's capacity is in use
    max_load: float = 0.7


@dataclass(frozen=True, slots=True)
class AffinitySpec:
    """What keeps a conversation on one replica, besides its own text."""

    #: request header whose value names the conversation; None: there is none
    header: str | None = None


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """A public model name and the pools behind it, by weight."""

    name: str
    pools: Mapping[str, int]
    policy: str = "queue_depth"
    overheat: OverheatSpec = OverheatSpec()
    eject: EjectSpec = EjectSpec()
    hold: HoldSpec = HoldSpec()
    retry: RetrySpec = RetrySpec()
    quarantine: QuarantineSpec = QuarantineSpec()
    #: None: no hedging
    hedge: HedgeSpec | None = None
    #: a new replica's share of traffic rises over this long
    slow_start: float = 10.0
    affinity: AffinitySpec = AffinitySpec()


@dataclass(frozen=True, slots=True)
class GpuSpec:
    type: str | None = None
    tensor: int = 1
    pipeline: int = 1
    #: GPUs of one machine that a replica may take; more are spread over several machines
    per_node: int = 8

    @property
    def per_replica(self) -> int:
        """GPUs that one replica takes (0 only for engines that need none, see PoolSpec.gpu_count)."""
        return self.tensor * self.pipeline


@dataclass(frozen=True, slots=True)
class ReplicaRange:
    min: int = 1
    max: int = 1


@dataclass(frozen=True, slots=True)
class DrainSpec:
    grace: float = 120.0


@dataclass(frozen=True, slots=True)
class StartSpec:
    """How long a replica may take to become ready, and when a restart loop is called a crash loop."""

    timeout: float = 1800.0
    crash_loop: int = 5
    backoff: float = 1.0
    backoff_max: float = 60.0


@dataclass(frozen=True, slots=True)
class PoolSpec:
    """Identical replicas: one engine, one model source, one set of arguments."""

    name: str
    engine: str
    #: model source for the engine: hub name, folder or file
    model: str | None = None
    args: Mapping[str, Scalar | tuple[Scalar, ...]] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    #: program to start instead of the engine's own name, e.g. a path in another virtual environment
    command: tuple[str, ...] = ()
    version: str | None = None
    #: None: the engine's default (one GPU for GPU engines, none for llamacpp, emulated, …)
    gpus: GpuSpec | None = None
    replicas: ReplicaRange = ReplicaRange()
    #: replicas that exist already; the pool is then never started by us
    endpoints: tuple[str, ...] = ()
    #: host:port whose DNS name gives the replicas' addresses
    dns: str | None = None
    #: [namespace/]name[:port] of the Kubernetes Service whose EndpointSlices are the replicas
    service: str | None = None
    #: name that the engine itself knows the model by, where it differs from the public one
    served_model_name: str | None = None
    #: most requests that the gateway lets one replica have at once; None: no bound of our own
    max_in_flight: int | None = None
    scaling: ScalingSpec | None = None
    placement: PlacementSpec = PlacementSpec()  # noqa: RUF009  # frozen, so shared safely
    #: container image; None: the engine's own at `version`
    image: str | None = None
    resources: ResourcesSpec = ResourcesSpec()  # noqa: RUF009  # same
    drain: DrainSpec = DrainSpec()
    start: StartSpec = StartSpec()
    #: emulated engine only: name or path of a speed profile
    profile: str | None = None
    #: tenants that have this pool to themselves; empty: everybody's
    tenants: tuple[str, ...] = ()

    @property
    def sleeps(self) -> bool:
        """It may have no replica at all, since one is started for the first request that waits."""
        if self.scaling is None:
            return False
        return self.replicas.min == 0 or any(each.min == 0 for each in self.scaling.schedules.values())

    @property
    def exists(self) -> bool:
        """Its replicas run already, or somebody else starts them."""
        return bool(self.endpoints) or self.dns is not None or self.service is not None


@dataclass(frozen=True, slots=True)
class TenantLimits:
    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    concurrency: int | None = None
    #: budgets by the calendar, in UTC
    tokens_per_day: int | None = None
    tokens_per_month: int | None = None


@dataclass(frozen=True, slots=True)
class TenantSpec:
    name: str
    keys: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    limits: TenantLimits = TenantLimits()
    #: further limits, each for one model; both hold
    model_limits: Mapping[str, TenantLimits] = field(default_factory=dict)
    priority: str = "normal"
    #: share of the capacity within its priority, relative to other tenants'
    weight: float = 1.0


@dataclass(frozen=True, slots=True)
class ClusterSpec:
    gateway: GatewaySpec = GatewaySpec()
    models: Mapping[str, ModelSpec] = field(default_factory=dict)
    pools: Mapping[str, PoolSpec] = field(default_factory=dict)
    tenants: Mapping[str, TenantSpec] = field(default_factory=dict)
    kubernetes: KubernetesSpec = KubernetesSpec()  # noqa: RUF009  # frozen, so shared safely
    ray: RaySpec = RaySpec()  # noqa: RUF009  # same
