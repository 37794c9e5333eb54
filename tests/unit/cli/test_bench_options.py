"""What the words of `kilocard bench` mean, and what they say when they make no sense."""

from __future__ import annotations

from pathlib import Path

import pytest

from kilocard.bench.document import Slo
from kilocard.cli.bench_options import Words, asked_of, body_of, slo_of
from kilocard.core.errors import UsageError
from kilocard.workload.lengths import Fixed, Uniform


def test_without_a_word_it_doubles_by_itself() -> None:
    asked = asked_of(Words())
    assert (asked.loads, asked.trace, asked.chat) == ((), (), None)
    assert (asked.mix.kinds[0].input, asked.mix.kinds[0].output) == (Fixed(512), Fixed(128))
    assert asked.duration_s == 20.0


def test_a_seed_is_drawn_and_written_down_where_none_is_given() -> None:
    assert asked_of(Words()).seed != asked_of(Words()).seed
    assert asked_of(Words(seed=7)).seed == 7


def test_a_number_of_requests_replaces_the_duration() -> None:
    asked = asked_of(Words(requests=100))
    assert (asked.duration_s, asked.requests) == (None, 100)


@pytest.mark.parametrize(
    ("text", "seconds"), [("30", 30.0), ("1.5", 1.5), ("30s", 30.0), ("2m", 120.0), ("500ms", 0.5)]
)
def test_durations_are_seconds_or_have_a_unit(text: str, seconds: float) -> None:
    assert asked_of(Words(duration=text)).duration_s == seconds


def test_lengths_may_be_ranges_and_mixes() -> None:
    assert asked_of(Words(input="256-1024")).mix.kinds[0].input == Uniform(256, 1024)
    kinds = asked_of(Words(mix="90% 200/100; 10% 4000/200")).mix.kinds
    assert [(kind.share, kind.input.mean) for kind in kinds] == [(90.0, 200.0), (10.0, 4000.0)]


def test_turns_make_conversations_out_of_input_and_output() -> None:
    chat = asked_of(Words(input="50", output="100", turns="5", think="2s", system=400)).chat
    assert chat is not None
    assert (chat.question, chat.answer, chat.turns) == (Fixed(50), Fixed(100), Fixed(5))
    assert (chat.think_s, chat.system_tokens) == (2.0, 400)


def test_a_trace_brings_its_own_requests(tmp_path: Path) -> None:
    file = tmp_path / "azure.csv"
    file.write_text(
        "TIMESTAMP,ContextTokens,GeneratedTokens\n"
        "2023-11-16 18:15:46.6805900,374,44\n"
        "2023-11-16 18:15:50.9951690,396,109\n"
        "2023-11-16 18:16:55.0000000,100,100\n"
    )
    assert len(asked_of(Words(trace=file)).trace) == 3
    first = asked_of(Words(trace=file, duration="10s"))
    assert [request.output_tokens for request in first.trace] == [44, 109]
    assert first.mix.kinds[0].input == Fixed(385)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (Words(sweep="1,2", rate="3"), "--sweep and --rate exclude each other"),
        (Words(rate="3", trace=Path("x")), "--rate and --trace exclude each other"),
        (Words(duration="3s", requests=5), "--duration and --requests"),
        (Words(duration="0"), "--duration: must be above 0"),
        (Words(duration="soon"), "--duration soon"),
        (Words(requests=0), "--requests: must be 1 or more"),
        (Words(repeats=0), "--repeats"),
        (Words(burstiness=0.5), "--burstiness .* needs --rate"),
        (Words(rate="1", burstiness=-1.0), "--burstiness"),
        (Words(input="many"), "'many'"),
        (Words(mix="100% 1/1", input="5"), "--mix has its own lengths"),
        (Words(think="1s"), "need --turns"),
        (Words(turns="3", mix="50% 1/1; 50% 2/2"), "--turns"),
        (Words(trace=Path("/no/such/file")), "--trace /no/such/file"),
        (Words(max_seconds="x"), "--max-seconds x"),
    ],
)
def test_what_makes_no_sense_is_told_with_the_option(words: Words, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        asked_of(words)


def test_bounds_of_goodput() -> None:
    assert slo_of(None, None, None) is None
    assert slo_of("500ms", None, "10") == Slo(ttft_s=0.5, e2e_s=10.0)
    with pytest.raises(UsageError, match="--slo-tpot fast"):
        slo_of(None, "fast", None)


def test_more_fields_for_the_body() -> None:
    assert body_of(None) == {}
    assert body_of('{"top_p": 0.9}') == {"top_p": 0.9}
    for text in ("{", "[1]", "5"):
        with pytest.raises(UsageError, match="--body"):
            body_of(text)
