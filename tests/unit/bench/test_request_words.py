"""What each request asked for is kept with the results, said in words, and compared."""

from __future__ import annotations

import msgspec
import pytest
from tests.run_results import results
from tests.simulated_points import simulated_point

from kilocard.bench.compare import compare
from kilocard.bench.document import About, Results, TargetSeen
from kilocard.bench.form import Form
from kilocard.bench.report.page import report_html
from kilocard.bench.request_words import request_words
from kilocard.bench.results import dump, load

EACH = {"include_usage": True, "continuous_usage_stats": True}


def asked(form: Form) -> Results:
    points = [simulated_point(concurrency=4, window_s=2.0, warmup_s=0.5)]
    return results(points, target=TargetSeen(url="http://x"), about=About(request=form.fields()))


def test_fields_are_those_of_the_body_without_text_and_length() -> None:
    form = Form("m", chat=False, min_tokens=True, extra={"top_p": 0.9, "temperature": None})
    sent = msgspec.json.decode(form.body("the text", 24))
    assert form.fields() == {
        name: sent[name] for name in ("model", "ignore_eos", "temperature", "stream", "stream_options", "top_p")
    }


@pytest.mark.parametrize(
    ("form", "words"),
    [
        (Form("m"), "temperature 0, ignore_eos, usage at the end"),
        (Form("m", temperature=None), "the server's own temperature, ignore_eos, usage at the end"),
        # as GuideLLM 0.8.1 asks
        (
            Form("m", extra={"temperature": None, "stream_options": EACH}),
            "the server's own temperature, ignore_eos, usage in each chunk",
        ),
        (Form("m", ignore_eos=False, usage=False), "temperature 0, no usage"),
        (
            Form("m", extra={"temperature": 0.7, "top_k": 40, "stop": ["\n"], "user": "u", "logprobs": None}),
            'temperature 0.7, ignore_eos, usage at the end, top_k 40, stop ["\\n"], user u',
        ),
        (Form("m", extra={"temperature": "hot", "stream_options": 1}), "temperature hot, ignore_eos, no usage"),
    ],
)
def test_words(form: Form, words: str) -> None:
    assert request_words(form.fields()) == words


def test_old_results_say_nothing() -> None:
    assert request_words({}) == ""


def test_json_and_page_say_it() -> None:
    document = load(dump(asked(Form("m", extra={"temperature": 0.7}))), "x")
    assert document.about.request["temperature"] == 0.7
    assert "Each request: temperature 0.7, ignore_eos, usage at the end" in report_html(document)


def test_a_secret_among_the_fields_is_not_kept() -> None:
    extra = {"tool_token": "abc", "stop_token": 2, "deep": {"api_key": "def", "url": "http://u:ghi@h/"}}
    written = dump(asked(Form("m", extra=extra))).decode()
    assert not any(secret in written for secret in ("abc", 'def"', "ghi"))
    assert load(written.encode(), "x").about.request["stop_token"] == 2


def test_runs_that_sampled_differently_are_not_compared_in_silence() -> None:
    greedy, warm = asked(Form("m")), asked(Form("m", temperature=None))
    (finding,) = compare(greedy, warm).findings
    assert finding.severity == "warning"
    assert finding.text == (
        'Not the same request: "temperature 0, ignore_eos, usage at the end" and "the server\'s own temperature, '
        'ignore_eos, usage at the end".'
    )
    old = asked(Form("m"))
    old.about.request = {}
    assert compare(old, warm).findings == compare(warm, old).findings == [], "older results don't say"
