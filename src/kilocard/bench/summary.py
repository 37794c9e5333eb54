"""What one point's requests say, as numbers; and which numbers are not given, and why.

The three of core/latency.py are checked against each other before they are given. There are four ways in which they
can fail to describe the same requests, each with its own consequence:

- the gaps do not add up to the time from first to last token: this client lost arrivals: no ITL and no TPOT;
- the server holds the text back and sends it in one piece: the first token came when the last did, so TTFT, TPOT and
  ITL measure nothing (vLLM's reasoning and tool parsers have done it: FastDeploy#8113, SGLang#36272);
- the answers come in more pieces than the server counts tokens: it leaves some out: no TPOT;
- lengths differ so much that the mean TPOT times the mean length is not the mean decode time: percentiles stay, the
  mean of TPOT goes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Literal

from kilocard.bench.censored import spread
from kilocard.bench.delivery import delivered, in_flight, mean_in_flight
from kilocard.bench.document import ClientSeen, Histogram, Lengths, PointResult, Slo, Spread
from kilocard.bench.engine_seen import engine_seen, series
from kilocard.bench.goodput import goodput
from kilocard.bench.histogram import histogram
from kilocard.bench.point import Point
from kilocard.bench.record import CUT_OFF, RequestRecord
from kilocard.bench.saturation import saturation
from kilocard.core import latency, statistics

#: a request is "not streamed" when more than this share of its text came in the last arrival …
HELD_BACK = 0.5
#: … and a point is when more than this share of its requests are
TOO_MANY = 0.05
#: more arrivals than tokens by this share and so many: not all tokens are counted
UNCOUNTED = 0.05
UNCOUNTED_FEW = 2


def summarise(point: Point, slo: Slo | None = None) -> PointResult:
    """All of a point's numbers. The window must have a length."""
    window = point.ended_s - point.started_s
    records = point.records
    whole = [record for record in records if record.error is None]
    cut = [record for record in records if record.error == CUT_OFF]
    failed = Counter(record.error for record in records if record.error not in (None, CUT_OFF))
    counted = [record.output_tokens for record in whole if record.output_tokens is not None]
    flow = delivered(point)
    engine = engine_seen(point)
    gaps = sorted(gap for record in whole for gap in record.gaps_s)
    # what was cut off had been waited for until the last thing that was seen: an open loop drains past its window
    seen_until = max([point.ended_s, *(record.last_s for record in records if record.last_s is not None)])
    times, withheld = _times(whole, cut, gaps, seen_until)
    return PointResult(
        concurrency=point.concurrency,
        rate_per_s=point.rate_per_s,
        repeat=point.repeat,
        started_s=point.started_s,
        window_s=window,
        warmup=point.warmup,
        requests=len(records),
        completed=len(whole),
        errors=sum(failed.values()),
        errors_by_kind={str(kind): count for kind, count in failed.most_common()},
        cut_off=len(cut),
        offered_per_s=len(records) / window,
        requests_per_s=flow.completions / window,
        output_tokens_per_s=flow.output_tokens / window,
        total_tokens_per_s=(flow.output_tokens + flow.prompt_tokens) / window,
        input_tokens=_total([record.input_tokens for record in whole]),
        output_tokens=_total([record.output_tokens for record in whole]),
        cached_tokens=_total([record.cached_tokens for record in whole]),
        lengths=_lengths(whole),
        tokens_counted_by=_counted_by(len(counted), len(whole)),
        first_kinds=dict(Counter(record.first_kind for record in whole if record.first_kind is not None)),
        finish_reasons=dict(Counter(record.finish_reason for record in whole if record.finish_reason is not None)),
        in_flight_mean=mean_in_flight(in_flight(point), point.started_s, point.ended_s),
        **times,
        withheld=withheld,
        goodput=goodput(point, slo, seen_until) if slo is not None else None,
        saturation=saturation(point, flow.completions, engine),
        engine=engine,
        client=ClientSeen(
            cpu_share=point.client.cpu_share, lag_p99_s=point.client.lag_p99_s, limited=point.client.limited
        ),
        histograms=_histograms(whole, gaps, withheld),
        series=series(point, flow),
    )


def _times(
    whole: Sequence[RequestRecord], cut: Sequence[RequestRecord], gaps: Sequence[float], seen_until: float
) -> tuple[dict[str, Spread | None], dict[str, str]]:
    """The four latencies by name, and what is withheld."""
    waited = [seen_until - record.intended_s for record in cut]
    late_first = [wait for record, wait in zip(cut, waited, strict=True) if record.first_s is None]
    began = [record.ttft_s for record in (*whole, *cut) if record.ttft_s is not None]
    times = {
        "ttft_s": spread(began, late_first),
        "tpot_s": spread([record.tpot_s for record in whole if record.tpot_s is not None]),
        "itl_s": spread(gaps),
        "e2e_s": spread([record.e2e_s for record in whole if record.e2e_s is not None], waited),
    }
    withheld: dict[str, str] = {}
    if not whole:
        return times, withheld
    held = sum(record.last_share > HELD_BACK and (record.output_tokens or 0) > 2 for record in whole)
    lost = sum(not gaps_add_up(record) for record in whole)
    if held > TOO_MANY * len(whole):
        reason = f"not streamed: {held} of {len(whole)} answers came with over half of their text in the last arrival"
        withheld = dict.fromkeys(("ttft_s", "tpot_s", "itl_s"), reason)
    elif lost > TOO_MANY * len(whole):
        reason = f"the gaps of {lost} of {len(whole)} answers do not add up to the time from first to last token"
        withheld = dict.fromkeys(("tpot_s", "itl_s"), reason)
    elif (uncounted := sum(map(counts_too_few, whole))) > TOO_MANY * len(whole):
        reason = (
            f"{uncounted} of {len(whole)} answers came in more pieces than usage counts tokens: the server does not "
            "count all that it generates (its thinking, say), and tokens/s are too low by as much"
        )
        withheld = {"tpot_s": reason}
    for name in withheld:
        times[name] = None
    tpot = times["tpot_s"]
    if tpot is not None and (why := means_disagree(whole)) is not None:
        tpot.mean = None
        withheld["tpot_s.mean"] = why
    elif tpot is None and "tpot_s" not in withheld:
        counted = any(record.output_tokens is not None for record in whole)
        withheld["tpot_s"] = (
            "no answer had two tokens or more" if counted else "the server sent no usage, so nobody counted the tokens"
        )
    return times, withheld


def gaps_add_up(record: RequestRecord) -> bool:
    """Is the time from first to last token what the gaps sum to? Measured apart, so a check of the client."""
    if record.first_s is None or record.last_s is None or record.e2e_s is None:
        return True
    return abs(sum(record.gaps_s) - (record.last_s - record.first_s)) <= latency.AGREEMENT * max(record.e2e_s, 1e-9)


def counts_too_few(record: RequestRecord) -> bool:
    """More arrivals than tokens: an arrival may carry several tokens, but a token never comes in several arrivals.

    A few more are none: parsers of tool calls send names and brackets apart.
    """
    if record.output_tokens is None or record.first_s is None:
        return False
    return 1 + len(record.gaps_s) > (1 + UNCOUNTED) * record.output_tokens + UNCOUNTED_FEW


def means_disagree(whole: Sequence[RequestRecord]) -> str | None:
    """Why mean TTFT, TPOT and end-to-end do not describe the same requests; None: they do."""
    rows = [
        (record.ttft_s, record.tpot_s, record.e2e_s, record.output_tokens)
        for record in whole
        if record.tpot_s is not None and record.ttft_s is not None and record.e2e_s is not None
    ]
    if not rows:
        return None
    ttft, tpot, e2e = (statistics.mean([row[place] or 0.0 for row in rows]) for place in range(3))
    lengths = [row[3] or 0 for row in rows]
    count = statistics.mean(lengths)
    # mean length times TPOT, in the terms of latency.agree: it takes the mean count, which need not be whole
    if abs(ttft + tpot * (count - 1) - e2e) <= latency.AGREEMENT * e2e:
        return None
    return (
        f"mean TTFT + mean TPOT × (mean tokens − 1) is {ttft + tpot * (count - 1):.3g} s, but the mean end-to-end is "
        f"{e2e:.3g} s: answers had {min(lengths)} to {max(lengths)} tokens, and the short ones have another TPOT"
    )


def _histograms(
    whole: Sequence[RequestRecord], gaps: Sequence[float], withheld: dict[str, str]
) -> dict[str, Histogram]:
    values = {
        "ttft_s": [record.ttft_s for record in whole if record.ttft_s is not None],
        "tpot_s": [record.tpot_s for record in whole if record.tpot_s is not None],
        "itl_s": gaps,
        "e2e_s": [record.e2e_s for record in whole if record.e2e_s is not None],
    }
    made = {name: histogram(each) for name, each in values.items() if name not in withheld}
    return {name: each for name, each in made.items() if each is not None}


def _lengths(whole: Sequence[RequestRecord]) -> dict[str, Lengths]:
    values = {
        "asked_input": [record.asked_input for record in whole],
        "input": [record.input_tokens for record in whole if record.input_tokens is not None],
        "asked_output": [record.asked_output for record in whole],
        "output": [record.output_tokens for record in whole if record.output_tokens is not None],
    }
    return {
        name: Lengths(mean=statistics.mean(each), min=min(each), p50=statistics.percentile(each, 0.5), max=max(each))
        for name, each in values.items()
        if each
    }


def _counted_by(counted: int, whole: int) -> Literal["usage", "arrivals", "mixed"]:
    if counted == whole:
        return "usage"
    return "mixed" if counted else "arrivals"


def _total(values: Sequence[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None
