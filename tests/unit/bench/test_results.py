from __future__ import annotations

import json
from functools import cache

import jsonschema
import msgspec
import pytest
from tests.run_results import results
from tests.simulated_points import record, simulated_point

from kilocard.bench import requests_log
from kilocard.bench.document import About, Finding, Results, Slo, TargetSeen
from kilocard.bench.point import Point
from kilocard.bench.results import dump, json_schema, load
from kilocard.core.errors import UsageError

TARGET = TargetSeen(url="http://user:pass@host:8000/v1?key=abc", model="m", engine="vllm", max_num_seqs=64)
ABOUT = About(
    started_at="2026-11-30T00:00:00Z", arguments={"api_key": "sk-1", "input_tokens": 64, "out": "http://a:b@c/"}
)


@cache
def swept() -> tuple[list[Point], Results]:
    points = [simulated_point(concurrency=c, window_s=3.0, warmup_s=1.0) for c in (1, 4, 16)]
    return points, results(points, target=TARGET, about=ABOUT, slo=Slo(ttft_s=1.0))


def test_every_field_of_the_contract_is_there() -> None:
    document = json.loads(dump(swept()[1]))
    assert {"schema", "target", "points", "knee", "limit", "advice"} <= set(document)
    point = document["points"][0]
    assert {"requests", "errors", "output_tokens_per_s", "requests_per_s"} <= set(point)
    assert point["concurrency"] == 1
    for name in ("ttft_s", "tpot_s", "itl_s", "e2e_s"):
        assert {"mean", "p50", "p95", "p99"} <= set(point[name])
    assert {"waiting_max", "preemptions"} <= set(point["engine"])
    assert {"cpu_share", "lag_p99_s", "limited"} <= set(point["client"])
    assert {"concurrency", "method"} <= set(document["knee"])


def test_it_comes_back_the_same_and_follows_its_own_schema() -> None:
    document = swept()[1]
    written = dump(document)
    assert load(written, "results.json") == document
    jsonschema.validate(json.loads(written), json_schema())


def test_no_secret_is_written() -> None:
    written = dump(swept()[1]).decode()
    for secret in ("pass@", "abc", "sk-1", "a:b@"):
        assert secret not in written
    assert json.loads(written)["about"]["arguments"] == {"api_key": "***", "input_tokens": 64, "out": "http://c/"}


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"not json", "is no JSON"),
        (b"[1, 2]", "no result of kilocard bench"),
        (b'{"request_throughput": 1, "mean_ttft_ms": 2}', "looks like one of `vllm bench serve`"),
        (b'{"benchmarks": []}', "looks like one of GuideLLM"),
        (b'{"schema": "kilocard.bench/99"}', "with the kilocard that wrote it"),
        (b'{"schema": "kilocard.bench/1", "points": 3}', "damaged or was edited"),
    ],
)
def test_foreign_and_old_files_are_named(data: bytes, says: str) -> None:
    with pytest.raises(UsageError, match=says) as caught:
        load(data, "b/results.json")
    assert "b/results.json" in caught.value.message


def test_fields_that_a_later_version_adds_do_not_hurt() -> None:
    raw = json.loads(dump(swept()[1])) | {"shiny": 1}
    assert load(msgspec.json.encode(raw), "x") == swept()[1]


def test_what_the_reader_must_know_is_among_the_findings() -> None:
    bad = Point(0.0, 10.0, concurrency=4, records=[record(1.0), record(2.0, error="reset")])
    short = Point(0.0, 10.0, concurrency=1, records=[record(float(at), ttft=0.9, gap=0.01) for at in range(10)])
    bad.client.limited = "its CPU was busy for 98 %"
    document = results(
        [bad, short], target=TARGET, about=ABOUT, findings=[Finding(severity="note", text="from the prober")]
    )
    text = "\n".join(finding.text for finding in document.findings)
    assert document.findings[0].text == "from the prober"
    assert "The load tester was the limit at 4 in flight" in text
    assert "1 of 2 requests failed at 4 in flight: 1 × reset" in text
    assert "Fewer were in flight than asked at 4 in flight" in text


def test_requests_come_back_with_their_point() -> None:
    points, _ = swept()
    lines = list(requests_log.write(points))
    back = list(requests_log.read(lines, "requests.jsonl"))
    assert len(back) == sum(len(point.records) + len(point.carried) for point in points) == len(lines) - 1
    mine = [line.record for line in back if line.point == 2 and not line.carried]
    assert [each.first_s for each in mine] == [each.first_s for each in points[2].records]
    assert list(mine[0].gaps_s) == pytest.approx(list(points[2].records[0].gaps_s), abs=1e-7)


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        ([], "is empty"),
        ([b'{"intended_s": 1}\n'], "line 1: does not begin"),
        ([b'{"schema": "kilocard.requests/1"}\n', b'{"point": "x"}\n'], "line 2: is not a request"),
    ],
)
def test_a_wrong_log_says_where(lines: list[bytes], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        list(requests_log.read(lines, "requests.jsonl"))
