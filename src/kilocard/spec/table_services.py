"""Parts beside the data plane that a gateway may have: TLS, identity, ledger, logs, traces."""

from __future__ import annotations

from kilocard.spec.kinds import DURATION, SHARE, SIZE, SOME_TIME, Text, YesNo
from kilocard.spec.sections import Key, ListOf, Section
from kilocard.spec.services import AccessLogSpec, OidcSpec, RecordSpec, TlsSpec, TracingSpec, UsageSpec

_HTTP = Text(pattern=r"https?://\S+", advice="write http://… or https://…", label="URL")

TLS = Section(
    TlsSpec(),
    "HTTPS for clients. The files are read again when they change.",
    (
        Key("certificate", Text(), "PEM file: the certificate and its chain.", required="name a PEM file"),
        Key("key", Text(), "PEM file: the private key.", required="name a PEM file"),
        Key("client_ca", Text(), "PEM file: who signs clients' certificates. Left out: clients need none."),
    ),
    "Tls",
)

OIDC = Section(
    OidcSpec(),
    "JWTs of an identity provider as bearer tokens.",
    (
        Key("issuer", _HTTP, "Who signs the tokens: the value of `iss`.", required="write the issuer's URL"),
        Key(
            "audience",
            ListOf(Text(), "audience", if_empty="say whom tokens are made out to, e.g. [kilocard]"),
            "Accepted values of `aud`.",
            required="say whom tokens are made out to, e.g. [kilocard]",
        ),
        Key("jwks", _HTTP, "URL of the key set.", default="`jwks_uri` of the issuer's discovery document"),
        Key("tenant_claim", Text(), "Claim that names the tenant; dots lead into nested claims."),
        Key("refresh", SOME_TIME, "How often the key set is read again. An issuer that is down changes nothing."),
    ),
    "Oidc",
)

USAGE = Section(
    UsageSpec(),
    "The ledger of what each request used: tenant, model, pool, tokens, times, outcome.",
    (
        Key("enabled", YesNo(), "Whether it is kept.", default="on with tenants, or with another key here"),
        Key(
            "database",
            Text(pattern=r"postgres(?:ql)?://\S+", advice="write postgresql://user@host/name", label="PostgreSQL URL"),
            "A PostgreSQL database (extra `postgres`).",
            default="the embedded store",
        ),
        Key("flush", SOME_TIME, "Written this often: a crash loses no more than this and the batch being written."),
        Key("keep", DURATION, "Rows older than this are removed (daily totals stay); 0: kept for ever."),
    ),
    "Usage",
)

ACCESS_LOG = Section(
    AccessLogSpec(),
    "One JSON line for each request, without prompts and keys.",
    (Key("path", Text(), "A file, or - for standard output."),),
    "AccessLog",
    short=(Text(), lambda path: {"path": path}),
)

TRACING = Section(
    TracingSpec(),
    "OpenTelemetry spans for requests, sent over OTLP/HTTP.",
    (
        Key("endpoint", _HTTP, "The collector, e.g. http://127.0.0.1:4318.", required="write the collector's URL"),
        Key("sample", SHARE, "Share of the requests that are traced where the client's own trace does not decide it."),
    ),
    "Tracing",
)

RECORD = Section(
    RecordSpec(),
    "A log of what the dispatcher saw and decided.",
    (
        Key("path", Text(), "The file.", required="name a file"),
        Key("size", SIZE, "At this size a new file is begun; the old one is kept as `PATH.1`."),
        Key(
            "prefixes",
            YesNo(),
            "Note how each prompt begins, as hashes, whatever the policy: a simulation of the log then knows what "
            "prefix caches would find.",
        ),
    ),
    "Record",
    short=(Text(), lambda path: {"path": path}),
)
