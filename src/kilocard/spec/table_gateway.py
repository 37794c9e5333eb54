"""The keys of `gateway:`, and of what a model may set about its replicas' health."""

from __future__ import annotations

from typing import Any

from kilocard.spec.kinds import DURATION, LISTEN, SHARE, SIZE, SOME_SHARE, SOME_TIME, At, Number, Whole
from kilocard.spec.model import EjectSpec, GatewaySpec, HoldSpec, Limits, OverheatSpec, RetrySpec, Timeouts
from kilocard.spec.sections import Key, Section

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
        Key("buffered", SIZE, "All request bodies and response buffers of the gateway together."),
        Key("connections", Whole(1, 10_000_000), "Most client connections at once."),
        Key("client_idle", SOME_TIME, "A client has this long to send a request head, or to go on with its body."),
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
    ),
    "Gateway",
)


def _settle_overheat(values: dict[str, Any], at: At) -> dict[str, Any]:
    """A lower `kv_usage` pulls the default of `kv_recover` down with it, else it would be above it."""
    if "kv_recover" not in values and "kv_usage" in values:
        values["kv_recover"] = min(OverheatSpec().kv_recover, round(values["kv_usage"] * 0.9, 6))
    return values


OVERHEAT = Section(
    OverheatSpec(),
    "Takes a replica out of routing while its own queue or KV cache is full.",
    (
        Key("waiting", Number(), "Out when more requests than this wait in the engine."),
        Key("kv_usage", SOME_SHARE, "Out when more than this share of the KV cache is in use."),
        Key("recover", SHARE, "Back in when waiting is at most this share of `waiting` …"),
        Key(
            "kv_recover", SHARE, "… and KV usage is at most this.", default="0.85, or 0.9 × `kv_usage` if that is less"
        ),
    ),
    "Overheat",
    settle=_settle_overheat,
)


def settle_backoff(blank: Any) -> Any:
    """A longer `backoff` pulls the default of `backoff_max` up with it."""

    def settle(values: dict[str, Any], at: At) -> dict[str, Any]:
        if "backoff_max" not in values and "backoff" in values:
            values["backoff_max"] = max(blank.backoff_max, values["backoff"])
        return values

    return settle


EJECT = Section(
    EjectSpec(),
    "Takes a failing replica out.",
    (
        Key("consecutive", Whole(1), "Out after this many failures in a row."),
        Key("error_share", SOME_SHARE, "Or after this share of failures over `window`."),
        Key("window", SOME_TIME, "What `error_share` looks back on."),
        Key("minimum", Whole(1), "Requests in `window` before `error_share` counts."),
        Key("backoff", SOME_TIME, "How long the first time; doubles each time."),
        Key("backoff_max", SOME_TIME, "Never longer than this.", default="1m, or `backoff` if that is more"),
        Key("max_share", SHARE, "Never more than this share of a pool; one replica always stays in."),
    ),
    "Eject",
    settle=settle_backoff(EjectSpec()),
)

HOLD = Section(
    HoldSpec(),
    "Requests that wait in the gateway while every replica is full.",
    (
        Key("max", Whole(0, 10_000_000), "Most requests that wait; 0: none, refuse at once."),
        Key("timeout", SOME_TIME, "Longest wait; then 503 with Retry-After."),
    ),
    "Hold",
)

RETRY = Section(
    RetrySpec(),
    "What happens when a replica fails before the first content byte.",
    (Key("attempts", Whole(1, 100), "Attempts in all, on different replicas; 1: no retry."),),
    "Retry",
)
