"""The keys of `gateway:`."""

from __future__ import annotations

from kilocard.spec.kinds import DURATION, LISTEN, SIZE, SOME_TIME, Text, Whole, YesNo
from kilocard.spec.model import GatewaySpec, Limits, Timeouts
from kilocard.spec.sections import Key, Section
from kilocard.spec.table_services import ACCESS_LOG, OIDC, RECORD, TLS, TRACING, USAGE

TIMEOUTS = Section(
    Timeouts(),
    "Four time-outs, kept apart because they mean different faults.",
    (
        Key("connect", SOME_TIME, "Opening a connection to a replica."),
        Key("first_token", SOME_TIME, "From sending the request to the first content, for an empty prompt."),
        Key("first_token_per_prompt_token", DURATION, "Added to `first_token` for each prompt token."),
        Key(
            "per_output_token",
            DURATION,
            "Added to `first_token` for each token that an answer may have which is not streamed: it comes as a whole. "
            "Where the request sets no limit, only `total` bounds it.",
        ),
        Key("idle", SOME_TIME, "Between two pieces of one response."),
        Key("total", SOME_TIME, "The whole request, waiting in the gateway included."),
    ),
    "Timeouts",
)

LIMITS = Section(
    Limits(),
    "Bounds on what clients may make the gateway hold in memory.",
    (
        Key("body", SIZE, "Largest request body; more is answered with 413."),
        Key("header", SIZE, "Largest request head; more is answered with 431."),
        Key("url", SIZE, "Longest path and query; more is answered with 414."),
        Key("buffered", SIZE, "All request bodies and response buffers of the gateway together."),
        Key("connections", Whole(1, 10_000_000), "Most client connections at once."),
        Key("client_idle", SOME_TIME, "A client has this long to send a request head, or to go on with its body."),
        Key("body_rate", Whole(0), "Bytes a second that a body has to come with after that; 0: any."),
        Key("keep_alive", SOME_TIME, "How long an idle client connection is kept (balancers usually keep 60 s)."),
    ),
    "Limits",
)

GATEWAY = Section(
    GatewaySpec(),
    "The gateway: where it listens, how long it waits, what it may hold.",
    (
        Key("listen", LISTEN, "Address for clients."),
        Key("admin", LISTEN, "Address for people and Prometheus: state, metrics, dashboard. Keep it private."),
        Key("timeouts", TIMEOUTS, "How long the gateway waits for replicas."),
        Key("limits", LIMITS, "What clients may make the gateway hold."),
        Key("scrape_interval", SOME_TIME, "Between two readings of one replica's metrics."),
        Key("shutdown_delay", DURATION, "After SIGTERM: go on accepting this long with /readyz failing."),
        Key("drain", DURATION, "After that: running requests have this long to finish."),
        Key(
            "keep_alive_comment", DURATION, "SSE comment to a waiting client after this long without a byte; 0: never."
        ),
        Key(
            "allow_open",
            YesNo(),
            "Serve everybody although there are no tenants and other machines can reach `listen`.",
        ),
        Key("tls", TLS, "Serve HTTPS. Left out: plain HTTP."),
        Key(
            "store",
            Text(),
            "File of the embedded store (SQLite): keys, budgets, usage.",
            default="`kilocard.db` in `$KILOCARD_HOME` or `~/.cache/kilocard`",
        ),
        Key("keys_file", Text(), "Further hashes of keys, as `tenant: [sha256:…]`; followed while the gateway runs."),
        Key("oidc", OIDC, "Bearer tokens of an identity provider, beside keys (extra `oidc`)."),
        Key(
            "limit_store",
            Text(pattern=r"rediss?://\S+", advice="write redis://host:port/0", label="redis:// URL"),
            "Redis through which several gateways share tenants' limits. Left out: this gateway counts alone.",
        ),
        Key("usage", USAGE, "The ledger of what each request used."),
        Key("access_log", ACCESS_LOG, "One JSON line for each request; a path, or - for standard output."),
        Key("tracing", TRACING, "OpenTelemetry spans (extra `otel`)."),
        Key("record", RECORD, "The decision log, to be replayed later."),
        Key("receipts", YesNo(), "Say how a request was routed to clients that ask with `x-kilocard-receipt`."),
        Key("watch", YesNo(), "Take over changes of the cluster file while running."),
    ),
    "Gateway",
)
