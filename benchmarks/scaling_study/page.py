"""docs/scaling-study.md, made of the results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Result = Mapping[str, Any]

INTRO = """\
# What the scaling policies are worth

<!-- Written by python -m benchmarks.scaling_study. Change benchmarks/scaling_study/page.py, not this page. -->

[Scaling](scaling.md) beside models of the Kubernetes HPA and of KEDA, in the [simulator](simulate.md): the same
requests, engines and gateway, and for `threshold` and `target` the very code that the controller runs.

```sh
python -m benchmarks.scaling_study --traces FOLDER
```

FOLDER holds two files of [Azure's public dataset](https://github.com/Azure/AzurePublicDataset) (CC-BY-4.0; Patel et
al., *Splitwise*, ISCA 2024): `AzureLLMInferenceTrace_code.csv` and `AzureLLMInferenceTrace_conv.csv`. Each run is kept
in `benchmarks/scaling_study/results.json`; what is there is not run again (`--again` forgets it).

**What is played.** An hour of each trace, each request twice within 5 s. *code* is bursts of a minute or two, four
times the mean and more, with silence between them; *conv* rises and falls by half over the hour. Replicas are A100s
with a 7B model (profile `a100-7b`), from 1 to 24 of them; the hour begins with 3 (code) and 4 (conv) that serve. A new
one serves after 30, 180 or 600 s; its GPU is paid from its start until its last stream has ended. Requests wait as long
as they have to, so nobody looks good by turning them away.

**What is counted.** Within SLO: first token within 2 s of arrival. GPU-hours: all that replicas held. Turns: how often
a policy changed its direction.

**Who plays.** `threshold` and `target` with the defaults of the cluster file; `target` is told the objective (2 s for
95 %) and nothing of the replicas' speed. The HPA by its documentation: every 15 s ceil(pods × average / target), 10 %
tolerance, pods that are not ready count as 0 on the way up, at most 4 pods or 100 % more in 15 s, the highest of the
last 300 s on the way down. KEDA polls every 30 s and hands the value to an HPA as ceil(total / target); its cool-down
of 300 s is about the last pod, which stays here. Each with two metrics: requests that wait (engines' and gateway's), 5
and 20 for each pod, as guides for vLLM have it; and requests in flight, 8 and 16 for each pod, of 32 that an engine
runs at once. The metrics come from a Prometheus that scrapes every 15 s.
"""

OUTRO = """\
## What it does not say

- One seed, one hour, one profile. A burst that comes without a sign is met by what is kept from the one before
  (`scaling.down.for`, or two cold starts if that is longer); the first one of a day is not.
- Constants of `target` (10 % to spare, how bursts count) were chosen while looking at these two traces; the shapes that
  show flapping came after. Traffic of another kind may be less kind: try your own with `kilocard simulate`.
- `threshold` on the edge goes to and fro, one replica every few minutes: a queue says nothing of how much is to spare
  once it is empty. That is what its five minutes are for; make them longer, or use `target`.
- The peers are models of the default behaviour. Queues are the metric that guides recommend; they are empty while
  replicas keep up, so a pool falls to its minimum and has to come back. In flight is the better one, and its right
  number for each pod has to be found for each model and mix. `minReplicas` and `behavior` can be set by hand too.
- `target` holds the time to the first token and does not look at the time between tokens, nor does this page.
"""

FLAPS = """\
## Does it flap?

An hour of Poisson arrivals with a cold start of 60 s. *sinus*: between 4 and 20 requests a second and back in 20
minutes; to follow it takes three times up and three times down. *edge*: half a minute above what two replicas do, half
a minute below, so that a number stands on the edge all the time.
"""


def page(results: Sequence[Result]) -> str:
    """Markdown."""
    parts = [INTRO, verdict(results)]
    for workload, title in (("code", "Azure code: bursts"), ("conv", "Azure conv: an hour of conversations")):
        mine = [each for each in results if each["workload"] == workload]
        for cold in sorted({each["cold_start_s"] for each in mine}):
            parts.append(f"## {title}, {cold:g} s of cold start\n")
            parts.append(_table([each for each in mine if each["cold_start_s"] == cold]))
    parts.append(FLAPS)
    parts.append(_flapping(results))
    parts.append(OUTRO)
    return "\n".join(parts)


def dominated(results: Sequence[Result]) -> list[tuple[Result, Result, bool]]:
    """(target's run, a peer's run of the same load, whether target is no worse in both and better in one)."""
    found = []
    for each in results:
        if each["policy"] in ("target", "threshold") or each["workload"] not in ("code", "conv"):
            continue
        ours = next(
            one
            for one in results
            if one["policy"] == "target"
            and (one["workload"], one["cold_start_s"]) == (each["workload"], each["cold_start_s"])
        )
        better = ours["within_slo"] > each["within_slo"] or ours["gpu_hours"] < each["gpu_hours"]
        no_worse = ours["within_slo"] >= each["within_slo"] and ours["gpu_hours"] <= each["gpu_hours"]
        found.append((ours, each, better and no_worse))
    return found


def verdict(results: Sequence[Result]) -> str:
    """The answer first."""
    pairs = dominated(results)
    held = [pair for pair in pairs if pair[2]]
    lines = [
        "## In short\n",
        f"`target` had more requests within the objective for fewer GPU-hours than the peer in {len(held)} of "
        f"{len(pairs)} comparisons (two traces, three cold starts, HPA and KEDA with four targets each).",
    ]
    for ours, peer, _ in (pair for pair in pairs if not pair[2]):
        lines.append(
            f"Not so on {peer['workload']} with {peer['cold_start_s']:g} s against {peer['policy']}: "
            f"{ours['within_slo']:.1%} for {ours['gpu_hours']:.1f} GPU-hours, {peer['within_slo']:.1%} for "
            f"{peer['gpu_hours']:.1f}."
        )
    return "\n".join(lines) + "\n"


def _table(results: Sequence[Result]) -> str:
    lines = [
        "| policy | within SLO | TTFT p50 | p95 | p99 | GPU-hours | replicas, mean (most) | grew | shrank | turns |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    lines += [
        f"| {each['policy']} | {each['within_slo']:.1%} | {each['ttft_p50_s']:.2f} s | {each['ttft_p95_s']:.1f} s | "
        f"{each['ttft_p99_s']:.1f} s | {each['gpu_hours']:.2f} | {each['replicas_mean']:.1f} "
        f"({each['replicas_most']}) | {each['grew']} | {each['shrank']} | {each['turns']} |"
        for each in results
    ]
    return "\n".join(lines) + "\n"


def _flapping(results: Sequence[Result]) -> str:
    lines = [
        "| load | policy | turns | grew | shrank | within SLO | GPU-hours |",
        "|---|---|---:|---:|---:|---:|---:|",
    ]
    lines += [
        f"| {each['workload']} | {each['policy']} | {each['turns']} | {each['grew']} | {each['shrank']} | "
        f"{each['within_slo']:.1%} | {each['gpu_hours']:.2f} |"
        for each in results
        if each["workload"] in ("sinus", "edge")
    ]
    return "\n".join(lines) + "\n"
