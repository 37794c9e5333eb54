"""What a gateway may have beside the data plane, as frozen types; part of `spec/model.py`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TlsSpec:
    """Paths of PEM files; they are read again when they change."""

    certificate: str = ""
    key: str = ""
    #: who signs clients' certificates; None: clients need none
    client_ca: str | None = None


@dataclass(frozen=True, slots=True)
class OidcSpec:
    """Bearer tokens of an identity provider (JWT), beside API keys."""

    issuer: str = ""
    #: accepted values of `aud`
    audience: tuple[str, ...] = ()
    #: URL of the key set; None: from the issuer's discovery document
    jwks: str | None = None
    #: the claim that names the tenant; dots lead into nested claims
    tenant_claim: str = "tenant"
    #: how often the key set is read again
    refresh: float = 300.0


@dataclass(frozen=True, slots=True)
class UsageSpec:
    """The ledger of what each request used."""

    #: None: where there are tenants, or another key of this section is set
    enabled: bool | None = None
    #: a PostgreSQL URL; None: the embedded store
    database: str | None = None
    #: seconds between two writes: what a crash can lose
    flush: float = 1.0
    #: seconds; rows older than this are removed, daily totals stay; 0: kept for ever
    keep: float = 0.0


@dataclass(frozen=True, slots=True)
class AccessLogSpec:
    """One JSON line for each request."""

    #: a path, or - for standard output
    path: str = "-"


@dataclass(frozen=True, slots=True)
class TracingSpec:
    """OpenTelemetry spans (extra `otel`)."""

    #: OTLP over HTTP, e.g. http://127.0.0.1:4318
    endpoint: str = ""
    #: share of the requests without a sampled parent that are traced
    sample: float = 1.0


@dataclass(frozen=True, slots=True)
class RecordSpec:
    """The decision log: every event that the dispatcher saw, to be replayed later."""

    path: str = ""
    #: the file is closed and a new one begun at this size; one old file is kept
    size: int = 256 * 1024 * 1024
    #: also how prompts begin, as hashes, where no policy asks for it
    prefixes: bool = False
