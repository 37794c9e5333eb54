"""docs/reference/metrics.md: what the admin listener's /metrics has, out of kilocard.metrics.names."""

from __future__ import annotations

from kilocard.metrics.names import ALL, OTHER, Metric

INTRO = f"""\
# Metrics

<!-- Written by scripts/generate-docs from src/kilocard/metrics/names.py. Edit the list there, not this page. -->

GET `/metrics` on the admin address (`gateway.admin`), Prometheus text. What to look at first, and which of these
are estimates: [observability](../observability.md).

Labels have values from the cluster file or from closed lists, never from a client. A model that is not in the
cluster file is `{OTHER}`. What is not known is left out, never 0. Times are seconds.

| name | type | labels | meaning |
|---|---|---|---|
"""


def metrics() -> dict[str, str]:
    table = INTRO + "".join(_row(metric) for metric in ALL)
    buckets = ["", "## Buckets", "", "Upper bounds in seconds; `+Inf` is always there.", ""]
    buckets += ["| name | buckets |", "|---|---|"]
    buckets += [f"| `{m.name}` | {', '.join(f'{bound:g}' for bound in m.buckets)} |" for m in ALL if m.buckets]
    return {"docs/reference/metrics.md": table + "\n".join(buckets) + "\n"}


def _row(metric: Metric) -> str:
    labels = ", ".join(f"`{label}`" for label in metric.labels) or "–"
    return f"| `{metric.name}` | {metric.kind} | {labels} | {metric.help} |\n"
