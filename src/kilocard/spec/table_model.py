"""What a model may set about its replicas' health and about requests that fail, wait or are late."""

from __future__ import annotations

from typing import Any

from kilocard.spec.kinds import SHARE, SOME_SHARE, SOME_TIME, At, Number, Text, Whole
from kilocard.spec.model import AffinitySpec, EjectSpec, HedgeSpec, HoldSpec, OverheatSpec, QuarantineSpec, RetrySpec
from kilocard.spec.sections import Key, Section

#: A token of RFC 9110 that is no secret: a key would tie a whole tenant to one replica, and hop-by-hop lines go no
#: further
HEADER_NAME = (
    r"(?!(?i:authorization|proxy-.*|x-api-key|api-key|cookie|connection|host|content-.*|transfer-encoding|x-forwarded-.*"
    r"|forwarded|x-real-ip|x-request-id|expect|keep-alive|te|trailer|upgrade)$)[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}"
)


def _settle_overheat(values: dict[str, Any], at: At) -> dict[str, Any]:
    """A lower `kv_usage` pulls the default of `kv_recover` down with it, else it would be above it."""
    if "kv_recover" not in values and "kv_usage" in values:
        values["kv_recover"] = min(OverheatSpec().kv_recover, round(values["kv_usage"] * 0.9, 6))
    return values


AFFINITY = Section(
    AffinitySpec(),
    "What keeps a conversation on one replica.",
    (
        Key(
            "header",
            Text(
                label="header name",
                pattern=HEADER_NAME,
                advice="write a header's name, as x-session-id; not authorization, cookie or one with a key in it",
            ),
            "Request header whose value names the conversation. It is passed on too.",
            default="none: the prompt's own beginning tells",
        ),
    ),
    "Affinity",
)

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

QUARANTINE = Section(
    QuarantineSpec(),
    "Refuses a request that was in flight when replicas died, instead of letting it kill more.",
    (
        Key("deaths", Whole(0, 100), "After this many deaths; 0: never."),
        Key("ttl", SOME_TIME, "For this long; deaths are remembered as long."),
    ),
    "Quarantine",
)

HEDGE = Section(
    HedgeSpec(),
    "A second attempt on another replica where the first token is late. Whoever answers first wins, the other is "
    "cancelled.",
    (
        Key(
            "after", SOME_TIME, "How late.", default="the 95th percentile of the replica's own first tokens, once known"
        ),
        Key("budget", SOME_SHARE, "At most this share of the requests is sent twice."),
        Key("max_load", SOME_SHARE, "Only while less than this share of the model's capacity is in use."),
    ),
    "Hedge",
)
