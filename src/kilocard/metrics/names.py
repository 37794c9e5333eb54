"""What kilocard exports: the one list of names, types, labels, help and buckets.

Dashboards, alerts and documentation read it too. Label values come from closed sets or from the cluster file,
never from a client: a model that is not in the cluster file is counted under OTHER.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["counter", "gauge", "histogram"]
#: how one number is made of those of several workers of one gateway; counters and histograms are always summed
Merge = Literal["sum", "max", "mean"]

#: label value for whatever is not in the cluster file or over a family's bound
OTHER = "other"

#: seconds; first tokens take from 5 ms (cached prefix, small model) to minutes (deep queues)
TTFT_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 0.75, 1.0, 1.5, 2.5, 5.0, 10.0, 20.0, 40.0, 80.0, 160.0)
#: seconds between two pieces of one stream; the top shows stalls
ITL_BUCKETS = (0.0025, 0.005, 0.01, 0.015, 0.02, 0.03, 0.04, 0.05, 0.075, 0.1, 0.15, 0.25, 0.5, 1.0, 2.5, 10.0)
E2E_BUCKETS = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 45.0, 60.0, 120.0, 300.0, 600.0, 1800.0)
#: seconds; a choice among a thousand replicas takes some 10 µs, and the machine's own hiccups stand at the top
DECISION_BUCKETS = (
    0.000005, 0.0000075, 0.00001, 0.000015, 0.00002, 0.00003, 0.00005, 0.000075, 0.0001, 0.00015, 0.0002, 0.0005,
    0.001, 0.005, 0.02,
)  # fmt: skip
HOLD_BUCKETS = (0.001, 0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


@dataclass(frozen=True, slots=True)
class Metric:
    """One family. `buckets` are upper bounds without +Inf, for histograms only."""

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()
    #: gauges only. "max" is for what each worker knows of the whole, "mean" for what they may disagree about
    merge: Merge = "sum"


REQUESTS = Metric(
    "kilocard_requests_total", "counter",
    "Requests that ended, by outcome: ok, client_error, client_gone, refused, timeout, upstream_error.",
    ("model", "pool", "outcome"),
)  # fmt: skip
RECEIVED = Metric(
    "kilocard_received_requests_total", "counter",
    "Requests that wanted a replica: each is in kilocard_requests_total when it has ended, and under way until then.",
)  # fmt: skip
UNDER_WAY = Metric("kilocard_requests_under_way", "gauge", "Requests that have not ended, held ones included.")
TTFT = Metric(
    "kilocard_time_to_first_token_seconds", "histogram",
    "From the whole request read to the first content byte sent on, hold included.", ("model",), TTFT_BUCKETS,
)  # fmt: skip
ITL = Metric(
    "kilocard_inter_token_latency_seconds", "histogram",
    "Between two pieces of one streamed response.", ("model",), ITL_BUCKETS,
)  # fmt: skip
E2E = Metric(
    "kilocard_e2e_request_latency_seconds", "histogram",
    "From the whole request read to the end of the response.", ("model",), E2E_BUCKETS,
)  # fmt: skip
HOLD_TIME = Metric(
    "kilocard_hold_time_seconds", "histogram",
    "How long requests that were held waited in the gateway for a replica.", ("model", "priority"), HOLD_BUCKETS,
)  # fmt: skip
PROMPT_TOKENS = Metric("kilocard_prompt_tokens_total", "counter", "Prompt tokens, as engines count them.", ("model",))
GENERATION_TOKENS = Metric("kilocard_generation_tokens_total", "counter", "Generated tokens.", ("model",))
RETRIES = Metric("kilocard_retries_total", "counter", "Further attempts on another replica, by reason.", ("reason",))
REFUSED = Metric("kilocard_refused_total", "counter", "Requests refused by the gateway, by code.", ("code",))
LIMITED = Metric(
    "kilocard_limited_total", "counter",
    "Requests refused with 429, by tenant and by the limit that it was, or request_exceeds_limit.",
    ("tenant", "reason"),
)  # fmt: skip
LIMIT_USED = Metric(
    "kilocard_limit_used", "gauge",
    "What a tenant uses of a limit now: of the last minute, the day, the month (UTC), or running requests. "
    "The model is empty for the limit of all models together.",
    ("tenant", "model", "limit"),
)  # fmt: skip
LIMIT_REMAINING = Metric(
    "kilocard_limit_remaining", "gauge", "What is left of it, never below 0.", ("tenant", "model", "limit")
)
LIMIT_STORE_UP = Metric(
    "kilocard_limit_store_up", "gauge",
    "1 while limits are counted in the store that gateways share, 0 while this gateway decides alone with its part.",
)  # fmt: skip
LIMIT_GATEWAYS = Metric(
    "kilocard_limit_gateways", "gauge", "Gateways that share limits, this one included, as last heard."
)
LIMITS_ALONE = Metric(
    "kilocard_limits_decided_alone_total", "counter",
    "Requests let in or refused without the store that gateways share limits through.",
)  # fmt: skip
STORE_ERRORS = Metric(
    "kilocard_store_errors_total", "counter", "Reads and writes that failed; serving goes on.", ("store",)
)
REPLICA_DEATHS = Metric(
    "kilocard_replica_deaths_total", "counter", "Replicas that died with requests of this gateway on them.", ("pool",)
)
QUARANTINED = Metric(
    "kilocard_quarantined", "gauge", "Request bodies that are refused as poison now.", ("model",), merge="max"
)
RETRIES_DENIED = Metric(
    "kilocard_retries_denied_total",
    "counter",
    "Failures that were not retried, since the budget was used up.",
    ("model",),
)
INTERNAL_ERRORS = Metric(
    "kilocard_internal_errors_total", "counter", "Faults of the gateway itself; each has a traceback in the log."
)
HEDGES = Metric(
    "kilocard_hedges_total", "counter",
    "Second attempts: sent; then won, lost, failed, or took_over from a first one that failed.", ("model", "result"),
)  # fmt: skip
REPLICA_IN_FLIGHT = Metric(
    "kilocard_replica_in_flight", "gauge", "Requests of this gateway on the replica now.", ("pool", "replica")
)
REPLICA_RUNNING = Metric(
    "kilocard_replica_running",
    "gauge",
    "Requests that run there, as we estimate it now.",
    ("pool", "replica"),
    merge="max",
)
REPLICA_WAITING = Metric(
    "kilocard_replica_waiting",
    "gauge",
    "Requests in the replica's own queue, as we estimate it now.",
    ("pool", "replica"),
    merge="max",
)
REPLICA_KV_USAGE = Metric(
    "kilocard_replica_kv_usage", "gauge", "Share of the KV cache in use, 0 to 1.", ("pool", "replica"), merge="max"
)
REPLICA_STATE = Metric(
    "kilocard_replica_state",
    "gauge",
    "1 for the state that the replica is in; other states have no series. Of several workers: the share that say so.",
    ("pool", "replica", "state"),
    merge="mean",
)
REPLICA_SAMPLE_AGE = Metric(
    "kilocard_replica_sample_age_seconds",
    "gauge",
    "Age of the replica's last load reading.",
    ("pool", "replica"),
    merge="max",
)
DECISIONS = Metric("kilocard_decisions_total", "counter", "Routing decisions, by reason.", ("reason",))
DECISION_TIME = Metric(
    "kilocard_decision_seconds", "histogram",
    "What the dispatcher took for a request that came: to choose a replica, to hold or refuse it. One in 16 is timed.",
    buckets=DECISION_BUCKETS,
)  # fmt: skip
PREFIX_TOKENS = Metric(
    "kilocard_prefix_prompt_tokens_total", "counter",
    "Prompt tokens of requests that prefix_affinity placed, as estimated.", ("model",),
)  # fmt: skip
PREFIX_EXPECTED = Metric(
    "kilocard_prefix_expected_tokens_total", "counter",
    "Of these, tokens that were expected in the chosen replica's cache.", ("model",),
)  # fmt: skip
PREFIX_TRUST = Metric(
    "kilocard_prefix_trust", "gauge",
    "Share of the expected cache hits that the engines' own counters bear out, 0 to 1.", ("model", "pool"),
    merge="mean",
)  # fmt: skip
SCRAPE_FAILURES = Metric("kilocard_scrape_failures_total", "counter", "Scrapes that gave no load reading.", ("pool",))
OPEN_CONNECTIONS = Metric("kilocard_open_connections", "gauge", "Client connections that are open.")
BUFFERED_BYTES = Metric("kilocard_buffered_bytes", "gauge", "Bytes of bodies and responses held in memory.")
HELD_REQUESTS = Metric(
    "kilocard_held_requests", "gauge", "Requests that wait in the gateway now, by class: high, normal, low.",
    ("model", "priority"),
)  # fmt: skip
RECORDED = Metric(
    "kilocard_recorded_events_total", "counter", "Events of the decision log: written, or lost.", ("result",)
)
TRACES = Metric("kilocard_traces_total", "counter", "Traced requests: sent to the collector, or dropped.", ("result",))
WORKERS = Metric("kilocard_workers", "gauge", "Worker processes that serve now (with --workers).")
WORKER_EXITS = Metric(
    "kilocard_worker_exits_total", "counter",
    "Worker processes that ended without being told to, by cause: exit, signal, hung, start.", ("cause",),
)  # fmt: skip
RECORDS_WRITTEN = Metric(
    "kilocard_records_written_total", "counter", "Requests written down, by where: ledger or access_log.", ("to",)
)
RECORDS_DROPPED = Metric(
    "kilocard_records_dropped_total", "counter", "Requests that could not be written down and are lost.", ("to",)
)
RECORD_WRITE_ERRORS = Metric(
    "kilocard_record_write_errors_total", "counter", "Writes that failed; most are tried again.", ("to",)
)
RECORDS_WAITING = Metric("kilocard_records_waiting", "gauge", "Requests that are not written down yet.", ("to",))
KEYS = Metric(
    "kilocard_keys", "gauge",
    "Keys of declared tenants, by source: cluster, keys_file, store; oidc: the issuer's keys that check tokens.",
    ("source",), merge="max",
)  # fmt: skip
KEY_SOURCE_UP = Metric(
    "kilocard_key_source_up", "gauge",
    "1 while a source of keys can be read, 0 while something is wrong with it and its last known keys are used.",
    ("source",), merge="mean",
)  # fmt: skip
KEY_SOURCE_AGE = Metric(
    "kilocard_key_source_age_seconds", "gauge",
    "Since the source of keys was last found well; no series before the first time.", ("source",),
    merge="max",
)  # fmt: skip
TLS_NOT_AFTER = Metric(
    "kilocard_tls_certificate_not_after_timestamp_seconds", "gauge",
    "When the certificate in use expires, in Unix time; with gateway.tls only.", merge="max",
)  # fmt: skip
TLS_RELOADS = Metric(
    "kilocard_tls_certificate_reloads_total",
    "counter",
    "Readings of changed certificate files: ok, failed.",
    ("outcome",),
)
TLS_HANDSHAKES = Metric(
    "kilocard_tls_handshakes_total", "counter",
    "TLS handshakes: ok, failed (or not in time), plain (HTTP to the TLS port), refused (too many connections).",
    ("outcome",),
)  # fmt: skip
CONFIG_RELOADS = Metric(
    "kilocard_config_reloads_total",
    "counter",
    "Readings of the cluster file after the first: ok, failed.",
    ("outcome",),
)
CONFIG_LAST_OK = Metric(
    "kilocard_config_last_reload_successful", "gauge", "0 while the cluster file is not what is in force: it is bad."
)
CONFIG_LOADED_AT = Metric(
    "kilocard_config_last_reload_success_timestamp_seconds", "gauge", "When the cluster file was last read and good."
)
CONFIG_GENERATION = Metric(
    "kilocard_config_generation", "gauge", "Rises with each change of the cluster file that was taken over."
)
CONFIG_INFO = Metric(
    "kilocard_config_info", "gauge", "Always 1; the hash of the cluster file is in the label.", ("hash",)
)
REPLICAS_WANTED = Metric(
    "kilocard_pool_replicas_wanted", "gauge", "Replicas that the controller wants; pools with `scaling` only.",
    ("pool",), merge="max",
)  # fmt: skip
REPLICAS = Metric(
    "kilocard_pool_replicas", "gauge",
    "Replicas as the controller sees them: pending (wanted, can't be started yet), starting, loading, ready, failing, "
    "draining.",
    ("pool", "phase"), merge="max",
)  # fmt: skip
SCALED_REPLICAS = Metric(
    "kilocard_scaled_replicas_total", "counter", "Replicas that the controller has started (up) and drained (down).",
    ("pool", "direction"),
)  # fmt: skip
SCALING_DECISIONS = Metric(
    "kilocard_scaling_decisions_total", "counter", "Decisions about a pool's replicas, one a second, by reason.",
    ("pool", "reason"),
)  # fmt: skip
CONTROLLER_LEADS = Metric(
    "kilocard_controller_leads", "gauge", "1 for the controller that acts, 0 for one that stands by.", merge="max"
)
CONTROLLER_LOOK_AGE = Metric(
    "kilocard_controller_look_age_seconds", "gauge", "Since the controller last looked at everything; about 1.",
    merge="max",
)  # fmt: skip
CONTROLLER_ERRORS = Metric(
    "kilocard_controller_errors_total", "counter",
    "What the controller tried and failed at: observe, decide, start, drain, record, lease, look.", ("where",),
)  # fmt: skip
BUILD_INFO = Metric("kilocard_build_info", "gauge", "Always 1; the version is in the label.", ("version",), merge="max")

#: every family, in the order of the page
ALL: tuple[Metric, ...] = (
    REQUESTS, RECEIVED, UNDER_WAY, TTFT, ITL, E2E, HOLD_TIME, PROMPT_TOKENS, GENERATION_TOKENS,
    RETRIES, RETRIES_DENIED, REFUSED, INTERNAL_ERRORS, REPLICA_DEATHS, QUARANTINED, HEDGES,
    LIMITED, LIMIT_USED, LIMIT_REMAINING, STORE_ERRORS,
    LIMIT_STORE_UP, LIMIT_GATEWAYS, LIMITS_ALONE,
    REPLICA_IN_FLIGHT, REPLICA_RUNNING, REPLICA_WAITING, REPLICA_KV_USAGE, REPLICA_STATE, REPLICA_SAMPLE_AGE,
    DECISIONS, DECISION_TIME, PREFIX_TOKENS, PREFIX_EXPECTED, PREFIX_TRUST,
    SCRAPE_FAILURES, OPEN_CONNECTIONS, BUFFERED_BYTES, HELD_REQUESTS, WORKERS, WORKER_EXITS,
    RECORDED, TRACES,
    RECORDS_WRITTEN, RECORDS_DROPPED, RECORD_WRITE_ERRORS, RECORDS_WAITING,
    KEYS, KEY_SOURCE_UP, KEY_SOURCE_AGE,
    TLS_NOT_AFTER, TLS_RELOADS, TLS_HANDSHAKES,
    CONFIG_RELOADS, CONFIG_LAST_OK, CONFIG_LOADED_AT, CONFIG_GENERATION, CONFIG_INFO,
    REPLICAS_WANTED, REPLICAS, SCALED_REPLICAS, SCALING_DECISIONS, CONTROLLER_LEADS, CONTROLLER_LOOK_AGE,
    CONTROLLER_ERRORS,
    BUILD_INFO,
)  # fmt: skip
