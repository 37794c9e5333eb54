"""Alert rules for Prometheus: what wakes somebody, and what they should look at first.

Names of metrics come from metrics/names.py, so that a renamed one can't be forgotten here. Thresholds are the cluster
file's own where it has them (scaling, scrape_interval), else said beside them.
"""

from __future__ import annotations

import re
from math import ceil
from typing import Any

from kilocard.metrics import names
from kilocard.metrics.names import Metric
from kilocard.spec.model import ClusterSpec, ModelSpec, PoolSpec
from kilocard.spec.scaling import ScaleStep
from kilocard.spec.units import format_duration

Rule = dict[str, Any]

#: share of requests that fail; a first token later than this many seconds at p95 (a chat's user has left by then)
FAILING, LATE = 0.01, 10.0
#: readings older than so many scrape intervals
STALE = 10
#: seconds before a certificate ends
CERTIFICATE = 14 * 86_400
#: R50's waiting requests a replica, where a pool has no scaling of its own
WAITING = ScaleStep(20.0, 30.0)

#: outcomes that are a failure of the service, not of its clients
_FAILED = 'outcome=~"upstream_error|timeout|refused"'
_SERVES = 'state=~"ready|slow_start|full|trial"'
_IS_OUT = _SERVES.replace("=~", "!~")


def rules(spec: ClusterSpec) -> dict[str, Any]:
    """The document of a rules file."""
    return {
        "groups": [
            {"name": "kilocard-service", "rules": [_nobody(model) for model in spec.models.values()] + _service()},
            {"name": "kilocard-pools", "rules": [_waiting(pool) for pool in spec.pools.values()] + _pools(spec)},
            {"name": "kilocard-gateway", "rules": _gateway(spec)},
            {"name": "kilocard-engines", "rules": _engines()},
        ]
    }


def _service() -> list[Rule]:
    requests, ttft, held = _name(names.REQUESTS), _name(names.TTFT), _name(names.HELD_REQUESTS)
    return [
        _page(
            "KilocardGatewayDown",
            'up{job="kilocard"} == 0',
            "1m",
            "gateway {{ $labels.instance }} can't be scraped",
            "Is the process there? Its log says why it ended; `kilocard status` asks the same address.",
        ),
        _page(
            "KilocardRequestsFail",
            f"sum by (model) (rate({requests}{{{_FAILED}}}[5m])) / sum by (model) (rate({requests}[5m])) > {FAILING}",
            "5m",
            "{{ $value | humanizePercentage }} of {{ $labels.model }}'s requests fail",
            f"`sum by (code) (rate({_name(names.REFUSED)}[5m]))` and the access log say which; "
            f"`{_name(names.RETRIES)}` shows replicas that fail and are covered by others.",
        ),
        _ticket(
            "KilocardFirstTokenLate",
            f"histogram_quantile(0.95, sum by (le, model) (rate({ttft}_bucket[5m]))) > {LATE:g}",
            "5m",
            "p95 of {{ $labels.model }}'s first token is {{ $value | humanizeDuration }}",
            "Do requests wait in the gateway or in the engines, or are prompts long? Compare held, waiting, prompts.",
        ),
        _ticket(
            "KilocardRequestsHeld",
            f"sum by (model) (min_over_time({held}[1m])) > 0",
            "1m",
            "requests for {{ $labels.model }} have been held for a minute",
            "Every replica is full: more replicas, or fewer or shorter requests.",
        ),
    ]


def _nobody(model: ModelSpec) -> Rule:
    held, state = _name(names.HELD_REQUESTS), _name(names.REPLICA_STATE)
    pools = "|".join(map(re.escape, model.pools))
    return _page(
        "KilocardModelWithoutReplica",
        f'sum by (model) ({held}{{model="{_quoted(model.name)}"}}) > 0'
        f' unless on () sum({state}{{pool=~"{_quoted(pools)}", {_SERVES}}}) > 0',
        "30s",
        "requests for {{ $labels.model }} wait and no replica serves",
        "`kilocard status` has each replica's state and why; the engines' logs are named there.",
        model=_literal(model.name),
    )


def _waiting(pool: PoolSpec) -> Rule:
    step = pool.scaling.up if pool.scaling is not None and pool.scaling.signal == "waiting" else WAITING
    return _ticket(
        "KilocardPoolQueues",
        f'avg by (pool) ({_name(names.REPLICA_WAITING)}{{pool="{_quoted(pool.name)}"}}) > {step.threshold:g}',
        str(format_duration(float(ceil(step.for_seconds)))),  # Prometheus knows no parts of a second
        f"{{{{ $value | humanize }}}} requests wait on each replica of {pool.name}",
        "It should be growing by now if it has `scaling`: `kilocard status` says why it is not.",
        pool=pool.name,
    )


def _pools(spec: ClusterSpec) -> list[Rule]:
    state, age = _name(names.REPLICA_STATE), _name(names.REPLICA_SAMPLE_AGE)
    return [
        _page(
            "KilocardHalfOfAPoolIsOut",
            # of those that don't, since where none serves there is no series of those that do
            f"sum by (pool) ({state}{{{_IS_OUT}}}) / sum by (pool) ({state}) > 0.5",
            "2m",
            "less than half of {{ $labels.pool }}'s replicas serve",
            "`kilocard status --pool {{ $labels.pool }}` says what is wrong with each.",
        ),
        _ticket(
            "KilocardReplicasDie",
            f"increase({_name(names.REPLICA_DEATHS)}[10m]) >= 2",
            "0s",
            "replicas of {{ $labels.pool }} die with requests on them",
            "Out of memory, a bad request, or a bad card: see the last lines of the engine's log. "
            "`kilocard_quarantined` counts requests that are suspected.",
        ),
        _ticket(
            "KilocardBlindToAPool",
            f"max by (pool) ({age}) > {spec.gateway.scrape_interval * STALE:g}",
            "1m",
            "metrics of a replica of {{ $labels.pool }} are {{ $value | humanizeDuration }} old",
            "Routing goes on with own counts. Is the engine's metrics page there, and quick?",
        ),
        _ticket(
            "KilocardCachesAreFull",
            f"avg by (pool) ({_name(names.REPLICA_KV_USAGE)}) > 0.95",
            "5m",
            "KV caches of {{ $labels.pool }} are full",
            "Engines preempt and compute again: lower max-num-seqs, shorten contexts, or add replicas.",
        ),
        _ticket(
            "KilocardReplicaWaitsForAGpu",
            f'sum by (pool) ({_name(names.REPLICAS)}{{phase="pending"}}) > 0',
            "10m",
            "{{ $labels.pool }} wants more replicas than there are GPUs",
            "Quota, a broken node, or a limit that is too high.",
        ),
    ]


def _gateway(spec: ClusterSpec) -> list[Rule]:
    found = [
        _page(
            "KilocardInternalErrors",
            f"increase({_name(names.INTERNAL_ERRORS)}[10m]) > 0",
            "0s",
            "a fault of the gateway itself on {{ $labels.instance }}",
            "The log has the traceback: please report it.",
        ),
        _ticket(
            "KilocardClusterFileIsBad",
            f"{_name(names.CONFIG_LAST_OK)} == 0",
            "5m",
            "the cluster file of {{ $labels.instance }} is not the one in force",
            "`kilocard status` says what is wrong in it; the last good one goes on.",
        ),
        _ticket(
            "KilocardUsageIsLost",
            f"increase({_name(names.RECORDS_DROPPED)}[10m]) > 0",
            "0s",
            "records for {{ $labels.to }} are lost",
            "The place that they go to can't be written to, or is too slow.",
        ),
        _ticket(
            "KilocardKeySourceDown",
            f"{_name(names.KEY_SOURCE_UP)} == 0",
            "5m",
            "keys from {{ $labels.source }} can't be read",
            "Known keys go on; new and revoked ones are not seen.",
        ),
    ]
    if spec.gateway.limit_store is not None:
        found.append(
            _ticket(
                "KilocardLimitsNotShared",
                f"{_name(names.LIMIT_STORE_UP)} == 0",
                "2m",
                "{{ $labels.instance }} counts limits alone",
                "Redis can't be reached: each gateway gives out its part.",
            )
        )
    if spec.gateway.tls is not None:
        found.append(
            _ticket(
                "KilocardCertificateEnds",
                f"{_name(names.TLS_NOT_AFTER)} - time() < {CERTIFICATE}",
                "1h",
                "the certificate of {{ $labels.instance }} ends in {{ $value | humanizeDuration }}",
                "Replace the files: they are followed.",
            )
        )
    if any(pool.scaling is not None for pool in spec.pools.values()):
        found.append(
            _page(
                "KilocardControllerStands",
                f"{_name(names.CONTROLLER_LOOK_AGE)} > 30",
                "1m",
                "nobody decides how many replicas there are",
                "The controller's log says what it hangs at. Replicas stay as they are.",
            )
        )
    return found


def _engines() -> list[Rule]:
    return [
        _ticket(
            "EnginePreempts",
            "sum by (pool) (rate(vllm:num_preemptions_total[5m])) > 0.1",
            "10m",
            "engines of {{ $labels.pool }} preempt",
            "The KV cache is too small for what is admitted: lower max-num-seqs, or more memory for the cache.",
        ),
        _page(
            "GpuError",
            "changes(DCGM_FI_DEV_XID_ERRORS[10m]) > 0 and DCGM_FI_DEV_XID_ERRORS > 0",
            "0s",
            "GPU {{ $labels.gpu }} of {{ $labels.Hostname }} reports XID {{ $value }}",
            "`nvidia-smi -q` and dmesg on that machine. 48, 79, 94 and 95 are the card.",
        ),
    ]


def _page(alert: str, expr: str, after: str, summary: str, look: str, **labels: str) -> Rule:
    """Somebody is woken."""
    return _rule(alert, expr, after, summary, look, {"severity": "critical", **labels})


def _ticket(alert: str, expr: str, after: str, summary: str, look: str, **labels: str) -> Rule:
    """Somebody looks at it today."""
    return _rule(alert, expr, after, summary, look, {"severity": "warning", **labels})


def _rule(alert: str, expr: str, after: str, summary: str, look: str, labels: dict[str, str]) -> Rule:
    return {
        "alert": alert,
        "expr": expr,
        **({"for": after} if after != "0s" else {}),
        "labels": labels,
        "annotations": {"summary": summary, "description": look},
    }


def _literal(text: str) -> str:
    """Prometheus fills templates in, in labels too; braces of a name are meant as they are."""
    return text.replace("{{", '{{ "{{" }}')


def _quoted(text: str) -> str:
    """Inside the quotes of PromQL."""
    return text.replace("\\", "\\\\").replace('"', '\\"')


def _name(metric: Metric) -> str:
    return metric.name
