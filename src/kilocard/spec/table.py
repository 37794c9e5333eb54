"""The cluster file as one table: every key with its kind, meaning and default.

The parser, the JSON Schema, the reference page and `dump` all come from here; a key is added in `model.py` and in
this table, nowhere else.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from kilocard.spec.kinds import DURATION, At, Choice, Number, Text, Whole
from kilocard.spec.model import ClusterSpec, ModelSpec, TenantLimits, TenantSpec
from kilocard.spec.sections import Key, ListOf, Named, Section, Weights
from kilocard.spec.table_deployment import KUBERNETES
from kilocard.spec.table_gateway import GATEWAY
from kilocard.spec.table_model import AFFINITY, EJECT, HEDGE, HOLD, OVERHEAT, QUARANTINE, RETRY
from kilocard.spec.table_pool import pool_section
from kilocard.spec.table_ray import RAY
from kilocard.spec.tenant_key import KEY_HASH
from kilocard.spec.vocabulary import (
    ENGINES,
    NAME,
    NAME_ADVICE,
    POLICIES,
    POOL_NAME,
    POOL_NAME_ADVICE,
    PRIORITIES,
)


def _settle_model(values: dict[str, Any], at: At) -> dict[str, Any]:
    """`pool: x` is short for `pools: {x: 1}`."""
    pool = values.pop("pool", None)
    if pool is not None and "pools" in values:
        at.problems.add((*at.path, "pool"), "is there beside pools", "keep one of the two")
    elif pool is not None:
        values["pools"] = {pool: 1}
    return values


MODEL = Section(
    ModelSpec(name="", pools={}),
    "A public model name: what clients put in `model`, and the pools behind it. May be empty.",
    (
        Key(
            "pools",
            Weights(Text(advice="write the name of a pool")),
            "Pools and their shares of the traffic.",
            default="the pool of the same name",
        ),
        Key("pool", Text(), "Short for one pool that gets everything.", field=""),
        Key("policy", Choice(POLICIES), "How a replica is chosen."),
        Key("affinity", AFFINITY, "What keeps a conversation on one replica, for `policy: prefix_affinity`."),
        Key("overheat", OVERHEAT, "When a full replica is taken out of routing."),
        Key("eject", EJECT, "When a failing replica is taken out."),
        Key("hold", HOLD, "How many requests wait in the gateway, and how long."),
        Key("retry", RETRY, "Retries on other replicas."),
        Key("quarantine", QUARANTINE, "What happens to requests that kill replicas."),
        Key("hedge", HEDGE, "A second attempt where the first token is late. Left out: none."),
        Key("slow_start", DURATION, "A new replica's share of traffic rises over this long."),
    ),
    "Model",
    settle=_settle_model,
)

TENANT_LIMITS = Section(
    TenantLimits(),
    "What one tenant may use; more is answered with 429. Left out: no limit.",
    (
        Key("requests_per_minute", Whole(1), "Requests per minute."),
        Key("tokens_per_minute", Whole(1, 10**12), "Prompt and output tokens per minute."),
        Key("concurrency", Whole(1), "Requests at once."),
        Key("tokens_per_day", Whole(1, 10**15), "Prompt and output tokens per day (UTC)."),
        Key("tokens_per_month", Whole(1, 10**15), "Prompt and output tokens per calendar month (UTC)."),
    ),
    "TenantLimits",
)

TENANT = Section(
    TenantSpec(name=""),
    "Somebody who may ask: API keys, models, limits.",
    (
        Key("keys", ListOf(KEY_HASH, "sha256:…", secret=True), "Hashes of API keys, from `kilocard keys create`."),
        Key(
            "models",
            ListOf(Text(), "model", if_empty="leave the key out if the tenant may use all models"),
            "Models that the tenant may use.",
            default="all models",
        ),
        Key("limits", TENANT_LIMITS, "What the tenant may use."),
        Key(
            "model_limits",
            Named(TENANT_LIMITS, "model", NAME, NAME_ADVICE, told=False),
            "What the tenant may use of single models; these and `limits` both hold.",
        ),
        Key("priority", Choice(PRIORITIES), "Whose requests leave the hold queue first."),
        Key(
            "weight",
            Number(label="number > 0", not_zero="write a weight above 0"),
            "Share of the capacity among tenants of the same priority: 2 gets twice as many tokens as 1.",
        ),
    ),
    "Tenant",
)


@cache
def cluster_section(engines: frozenset[str] = ENGINES) -> Section:
    """The whole file, where `engines` are the engines that there are."""
    return Section(
        ClusterSpec(),
        "One cluster: gateway, models, pools, tenants. Keys that start with x- are ignored (a place for anchors).",
        (
            Key("gateway", GATEWAY, "The gateway: addresses, time-outs, limits."),
            Key(
                "models",
                Named(MODEL, "model", NAME, NAME_ADVICE),
                "Public model names, and the pools behind each. A pool that no model names is a model of its own name.",
            ),
            Key(
                "pools",
                Named(pool_section(engines), "pool", POOL_NAME, POOL_NAME_ADVICE),
                "Sets of identical replicas.",
                required="describe at least one pool, e.g. pools: {my-model: {engine: vllm, model: …}}",
            ),
            Key(
                "tenants",
                Named(TENANT, "tenant", NAME, NAME_ADVICE),
                "Who may ask. None: the gateway answers everybody that reaches it.",
            ),
            Key("kubernetes", KUBERNETES, "What `kilocard render kubernetes` and `helm` need to know besides."),
            Key("ray", RAY, "The Ray cluster of the backend `ray` and of `kilocard render ray`."),
        ),
        "Cluster",
        private="x-",
    )
