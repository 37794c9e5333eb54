"""The exact parser on the odd pages that real exporters have sent."""

from __future__ import annotations

import json
import math

import pytest

from kilocard.core.errors import EngineError
from kilocard.metrics.exact import Sample, parse, parse_line
from kilocard.metrics.exposition_error import NotExposition


def only(page: str) -> Sample:
    parsed = parse(page.encode())
    assert len(parsed.samples) == 1, parsed
    return parsed.samples[0]


def test_a_plain_line() -> None:
    assert only('up{job="x"} 1') == Sample("up", {"job": "x"}, 1.0, None)


def test_escapes_in_label_values() -> None:
    assert only(r'm{a="q\"uote",b="back\\slash",c="new\nline",d="\t stays"} 1').labels == {
        "a": 'q"uote', "b": "back\\slash", "c": "new\nline", "d": "\\t stays"
    }  # fmt: skip


def test_an_escaped_backslash_before_an_n_is_no_newline() -> None:
    assert only(r'm{a="\\n"} 1').labels == {"a": "\\n"}


@pytest.mark.parametrize("odd", ["} 5", "{", ", b=", " # {", "  ", "\u2028", "\x85", "\x0b", "\u00a0", "千卡"])
def test_odd_characters_inside_a_label_value_are_text(odd: str) -> None:
    page = parse(f'm{{a="x{odd}y"}} 3\nn 4\n'.encode())
    assert [(s.name, s.value) for s in page.samples] == [("m", 3.0), ("n", 4.0)]
    assert page.samples[0].labels == {"a": f"x{odd}y"}


def test_timestamps_are_read_and_kept_apart_from_values() -> None:
    # shape of a line in awslabs/benchmark-ai#759, its label name made legal
    assert only('m{job_id="x",sender="y",} 0.97 1566410129000') == Sample(
        "m", {"job_id": "x", "sender": "y"}, 0.97, 1566410129000.0
    )


def test_a_trailing_comma_is_tolerated_and_a_bad_label_name_skips_that_sample_only() -> None:
    page = parse(b'm{job-id="x",sender="y",} 0.97 1566410129000\nm{sender="z",} 2\n')
    assert page.samples == [Sample("m", {"sender": "z"}, 2.0)]
    assert page.junk == 1


def test_exemplars_are_passed_over() -> None:
    line = 'ttft_bucket{le="0.5",model_name="m"} 10 # {trace_id="00} 7"} 0.31 1.5'
    assert only(line) == Sample("ttft_bucket", {"le": "0.5", "model_name": "m"}, 10.0)


@pytest.mark.parametrize(("text", "value"), [("NaN", math.nan), ("+Inf", math.inf), ("-Inf", -math.inf)])
def test_values_that_are_not_finite_are_samples_like_others(text: str, value: float) -> None:
    page = parse(f"sglang:fwd_occupancy {text}\nok 1\n".encode())
    assert len(page.samples) == 2
    assert repr(page.samples[0].value) == repr(value)


def test_one_bad_line_never_discards_the_page() -> None:
    page = parse(b'# HELP a x\na 1\nbogus line\nb{ 2\nc{x="1"} many\nd 1_000\ne 4\n')
    assert [s.name for s in page.samples] == ["a", "e"]
    assert page.junk == 4


@pytest.mark.parametrize(
    "line",
    ["m", "m{}", 'm{a="x"}', "m 1 abc", 'm{a="x"b="y"} 1', "m{,} 1", 'm{a="x",a="y"} 1', "1m 2", "m\u00a01", "m ٣"],
)
def test_what_is_not_a_sample(line: str) -> None:
    assert parse_line(line) is None


@pytest.mark.parametrize("line", [" \tm 1", "m\t1 ", "m{} 1", "m {} 1", 'm{ a = "x" , b="y" } 1', 'm{a="x"}1'])
def test_blanks_between_tokens_do_not_matter(line: str) -> None:
    sample = parse_line(line)
    assert sample is not None
    assert (sample.name, sample.value) == ("m", 1.0)


def test_carriage_returns_blank_lines_and_the_end_mark() -> None:
    page = parse(b'\xef\xbb\xbf# TYPE a gauge\r\na 1\r\n\r\nb{x="y"} 2\r\n# EOF\r\n')
    assert [(s.name, s.value) for s in page.samples] == [("a", 1.0), ("b", 2.0)]
    assert page.junk == 0


def test_a_page_that_is_one_json_string_is_decoded() -> None:
    # ggml-org/llama.cpp#17384: builds ~b7010 to b7100
    inner = "# TYPE llamacpp:prompt_tokens_total counter\nllamacpp:prompt_tokens_total 1523\n"
    page = parse(json.dumps(inner).encode())
    assert page.samples == [Sample("llamacpp:prompt_tokens_total", {}, 1523.0)]
    assert page.json_quoted


@pytest.mark.parametrize(
    ("body", "what"),
    [
        (b'{"serve_mode":"direct"}', "JSON"),
        (b'[{"cpuMemUsage":0,"iter":1}]', "JSON"),
        (b"<!DOCTYPE html><html><body>404</body></html>", "HTML"),
        (b"\n <html>", "HTML"),
        (b'"# TYPE x counter\\nx 1', "JSON string"),
        (b"404 page not found", "other text"),
    ],
)
def test_other_bodies_are_a_clear_error(body: bytes, what: str) -> None:
    with pytest.raises(NotExposition, match=what) as caught:
        parse(body)
    assert isinstance(caught.value, EngineError)
    assert body[:10].decode().strip()[:5] in str(caught.value)


def test_the_error_shows_at_most_sixty_bytes() -> None:
    with pytest.raises(NotExposition) as caught:
        parse(b'{"' + b"x" * 5000)
    assert "x" * 58 in str(caught.value)
    assert "x" * 59 not in str(caught.value)


@pytest.mark.parametrize("body", [b"", b"\n", b"# No active runners\n"])
def test_an_idle_exporter_is_not_an_error(body: bytes) -> None:
    assert parse(body).samples == []


def test_hostile_labels_take_linear_time() -> None:
    # sgl-project/sglang#31193: a scanner's paths became label values; the grammar must not backtrack on them
    line = 'm{path="' + '\\"{}=,' * 20_000 + '" 1'
    assert parse_line(line) is None
    assert parse_line('m{a="' + "/../../etc/passwd" * 10_000 + '"} 1') is not None
