from __future__ import annotations

from array import array

import pytest

from kilocard.bench.findings import (
    Finding,
    all_findings,
    first_kind,
    longer_than_asked,
    no_usage,
    not_streamed,
    output_lengths,
    prefix_hit_share,
    prefix_hits,
    prompt_length,
    shorter_than_asked,
    stopped_early,
    tokens_per_arrival,
)
from kilocard.bench.point import EngineSample
from kilocard.bench.record import RequestRecord
from kilocard.bench.same_work import different_work


def record(output: int | None = 100, *, arrivals: int = 100, **known: object) -> RequestRecord:
    made = RequestRecord(0.0, 0.0, asked_input=500, asked_output=100)
    made.first_s, made.last_s, made.done_s = 0.1, 1.0, 1.0
    made.gaps_s = array("d", [0.9 / arrivals] * (arrivals - 1))
    made.input_tokens, made.output_tokens = 500, output
    made.last_share, made.first_kind, made.finish_reason = 1 / arrivals, "content", "length"
    for name, value in known.items():
        setattr(made, name, value)
    return made


def ids(findings: list[Finding]) -> list[str]:
    return [finding.id for finding in findings]


def test_nothing_to_say_of_what_went_as_asked() -> None:
    assert all_findings([record()] * 5, [], ignore_eos=True, distinct=True) == []


def test_nothing_to_say_of_nothing() -> None:
    assert all_findings([], [], ignore_eos=True, distinct=True) == []
    failed = record(None, error="refused: 429", finish_reason=None, first_kind=None, input_tokens=None)
    assert all_findings([failed], [], ignore_eos=True, distinct=True) == []


def test_bn_03_text_that_comes_at_the_end_is_called_not_streamed() -> None:
    """Two empty-looking deltas, then a chunk with the whole of it."""
    held = not_streamed([record(6400, arrivals=3, last_share=0.97, first_kind="reasoning")] * 4)
    assert held is not None
    assert held.severity == "error"
    assert held.text.startswith("not streamed: 97%")
    assert not_streamed([record(arrivals=2, last_share=0.5)]) is None


def test_bn_03_short_answers_beside_long_ones_count_by_their_tokens() -> None:
    assert not_streamed([record(1000), *[record(2, arrivals=1, last_share=1.0)] * 20]) is None
    assert not_streamed([record(1, arrivals=1, last_share=1.0)]) is None, "one token is always in one arrival"


def test_bn_03_says_which_kind_came_first() -> None:
    found = first_kind([record(first_kind="reasoning")] * 3 + [record()])
    assert found is not None
    assert "reasoning in 75%" in found.text
    assert found.numbers == {"reasoning": 0.75}
    assert first_kind([record()]) is None


def test_bn_03_few_arrivals_of_6400_tokens_are_not_token_by_token() -> None:
    found = tokens_per_arrival([record(6400, arrivals=32)])
    assert found is not None
    assert (found.severity, found.numbers["tokens_per_arrival"]) == ("warning", 200.0)
    speculative = tokens_per_arrival([record(300, arrivals=100)])
    assert speculative is not None
    assert speculative.severity == "note"


def test_bn_04_counts_come_from_usage_alone() -> None:
    """100 spaces: a tokenizer would make 7 tokens of the text, and the text may come in any number of arrivals."""
    assert output_lengths([record(100, arrivals=7)])["mean"] == 100
    found = no_usage([record(), record(None)])
    assert found is not None
    assert found.text.startswith("1 of 2 answers came without usage")
    assert output_lengths([record(None)]) == {}


def test_bn_07_asked_against_actual_lengths() -> None:
    outputs = [4, 300, 328, 329, 400, 664]
    found = shorter_than_asked([record(output, asked_output=1000) for output in outputs])
    assert found is not None
    assert found.numbers["mean"] == pytest.approx(337.5)
    assert (found.numbers["min"], found.numbers["p50"], found.numbers["max"]) == (4, 328.5, 664)
    assert "338 tokens on average, 1000 were asked for" in found.text
    assert shorter_than_asked([record(996, asked_output=1000)]) is None


@pytest.mark.parametrize(("mean", "flagged"), [(914.0, False), (869.0, False), (868.0, True), (1000.0, True)])
def test_bn_07_runs_of_other_lengths_are_not_compared(mean: float, flagged: bool) -> None:
    found = different_work(
        {"output_tokens": 914.0, "input_tokens": 500.0}, {"output_tokens": mean, "input_tokens": 500.0}
    )
    assert bool(found) is flagged
    if flagged:
        assert "their answers have 914" in found[0]


def test_bn_07_other_prompts_are_other_work_too() -> None:
    found = different_work({"input_tokens": 500.0}, {"input_tokens": 1000.0, "output_tokens": 9.0})
    assert len(found) == 1 and "their prompts have 500 and 1000 tokens" in found[0]


def test_bn_08_a_server_that_ignores_ignore_eos() -> None:
    early = record(61, asked_output=150, finish_reason="stop")
    found = stopped_early([early, early, record(150, asked_output=150)])
    assert found is not None
    assert found.severity == "warning"
    assert "2 of 3 answers ended by themselves, after 61 tokens on average" in found.text
    assert "stopped_early" not in ids(all_findings([early], [], ignore_eos=False, distinct=True))
    assert "stopped_early" in ids(all_findings([early], [], ignore_eos=True, distinct=True))


def test_prompt_length_is_checked_to_one_percent() -> None:
    assert prompt_length([record(input_tokens=505)]) is None
    found = prompt_length([record(input_tokens=506), record()])
    assert found is not None
    assert found.numbers["worst_share"] == pytest.approx(0.012)
    assert prompt_length([record(asked_input=8, input_tokens=9)]) is None, "a token more is not worth a word"


def sample(at: float, queries: float | None, hits: float | None) -> EngineSample:
    return EngineSample(at, prefix_queries=queries, prefix_hits=hits)


def test_bn_01_hits_of_distinct_prompts_are_a_warning_from_one_percent_on() -> None:
    few = [sample(0, 1000, 900), sample(5, None, None), sample(9, 2000, 909)]
    assert prefix_hit_share([], few) == pytest.approx(0.009)
    assert prefix_hits([], few, distinct=True) is None
    many = [sample(0, 1000, 900), sample(9, 2000, 910)]
    found = prefix_hits([], many, distinct=True)
    assert found is not None
    assert found.severity == "warning"
    assert "1.0% of the prompt tokens came out of a prefix cache" in found.text


def test_bn_01_the_chat_template_may_be_found_in_the_cache() -> None:
    """16 of 500 tokens are the same in each prompt: not a flaw of the prompts."""
    samples = [sample(0, 0, 0), sample(9, 5000, 160)]
    found = prefix_hits([record()], samples, distinct=True, template_tokens=31)
    assert found is not None
    assert found.severity == "note"
    assert prefix_hits([record()], samples, distinct=True) is not None


def test_bn_01_by_usage_where_there_are_no_counters() -> None:
    records = [record(cached_tokens=250), record(cached_tokens=0), record()]
    assert prefix_hit_share(records, [sample(0, None, None)]) == pytest.approx(0.25)
    assert prefix_hit_share([record()], []) is None


def test_counters_of_an_engine_that_started_again() -> None:
    assert prefix_hit_share([], [sample(0, 900, 90), sample(1, 100, 50), sample(2, 200, 50)]) == pytest.approx(0.25)


def test_shared_prefixes_are_a_note() -> None:
    found = prefix_hits([], [sample(0, 0, 0), sample(1, 100, 60)], distinct=False)
    assert found is not None
    assert (found.severity, found.numbers["share"]) == ("note", 0.6)


def test_a_server_that_does_not_keep_to_max_tokens_is_named() -> None:
    found = longer_than_asked([record(300, arrivals=300)] * 3)
    assert found is not None
    assert (found.severity, found.numbers["mean"]) == ("warning", 300)
    assert "300 tokens on average, 100 were asked for" in found.text
    assert longer_than_asked([record(101)] * 3) is None, "some count the end of the text as a token"
    assert longer_than_asked([record(None)]) is None
