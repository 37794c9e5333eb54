"""`kilocard bench` against the real vLLM: what it says of a server whose slots are known.

No times are asserted, since this machine may be anybody's. What must hold on any machine: who counts the tokens agrees,
the numbers describe the same requests, the engine's own gauges show the load that was asked for, and the knee is where
the slots are.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace
from real_cluster import metric, page, up

from kilocard.bench.document import Results
from kilocard.bench.knee import find_knee
from kilocard.bench.record import CUT_OFF
from kilocard.bench.requests_log import Line, read
from kilocard.bench.results import load
from kilocard.core import latency

pytestmark = [pytest.mark.slow, pytest.mark.vllm, pytest.mark.timeout(420)]  # an engine starts within it

SLOTS = 4
INPUT, OUTPUT = 64, 24


@pytest.fixture(scope="module")
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of one run; `generated` in it has the tokens that the engine itself says it made."""
    built = request.getfixturevalue("vllm_cpu")
    folder = tmp_path_factory.mktemp("bench")
    pool = {
        "engine": "vllm",
        "command": [str(built.vllm)],
        "model": str(built.model),
        "args": {"max-model-len": 2048, "max-num-seqs": SLOTS, "dtype": "bfloat16", "enforce-eager": True},
        "env": {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind", "OMP_NUM_THREADS": "1"},
        "version": "0.32.0+cpu",
        "replicas": 1,
    }
    with up({"models": {"smol": {"pools": {"cpu": 1}}}, "pools": {"cpu": pool}}, folder) as cluster:
        (replica,) = cluster.wait_ready(1)
        argv = [sys.executable, "-m", "kilocard", "bench", replica["url"], "--sweep", "1,2,4,8,16", "--duration", "3s"]
        argv += ["--input", str(INPUT), "--output", str(OUTPUT), "--max-seconds", "150", "--out", str(folder / "run")]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=250)
        generated = metric(page(f"{replica['url']}/metrics"), "vllm:generation_tokens_total")
    # 1: others took the processor, and the report says so
    assert done.returncode in (0, 1) and "Traceback" not in done.stderr, done.stderr
    (folder / "run" / "generated").write_text(str(generated))
    return folder / "run"


@pytest.fixture(scope="module")
def results(run: Path) -> Results:
    return load((run / "results.json").read_bytes(), "results.json")


@pytest.fixture(scope="module")
def requests(run: Path) -> list[Line]:
    with (run / "requests.jsonl").open("rb") as lines:
        return list(read(lines, "requests.jsonl"))


def test_every_request_is_answered_with_the_tokens_that_were_asked_for(results: Results, requests: list[Line]) -> None:
    assert [point.concurrency for point in results.points] == [1, 2, 4, 8, 16]
    for point in results.points:
        assert point.errors == 0 and point.tokens_counted_by == "usage"
        assert point.completed > 0 and point.output_tokens == OUTPUT * point.completed
    for line in requests:
        if line.record.error is None and line.point >= 0:
            assert (line.record.input_tokens, line.record.output_tokens) == (INPUT, OUTPUT)
            assert len(line.record.gaps_s) == OUTPUT - 1  # vLLM sends each token by itself


def test_the_engine_counts_no_fewer_tokens_than_were_received(run: Path, requests: list[Line]) -> None:
    received = sum(line.record.output_tokens or 0 for line in requests)
    generated = float((run / "generated").read_text())
    assert received <= generated
    assert all(line.record.error in (None, CUT_OFF) for line in requests)


def test_the_three_numbers_describe_the_same_requests(results: Results, requests: list[Line]) -> None:
    for point in results.points:
        assert point.withheld == {}
        assert point.ttft_s is not None and point.tpot_s is not None and point.e2e_s is not None
        assert point.ttft_s.mean is not None and point.tpot_s.mean is not None and point.e2e_s.mean is not None
        assert latency.agree(point.ttft_s.mean, point.tpot_s.mean, point.e2e_s.mean, OUTPUT)
    for record in (line.record for line in requests):
        if record.error is None:
            assert record.ttft_s is not None and record.e2e_s is not None
            assert record.ttft_s + sum(record.gaps_s) == pytest.approx(record.e2e_s, abs=1e-3)


def test_the_gauges_show_the_load_and_the_knee_is_where_the_slots_are(results: Results) -> None:
    for point in results.points:
        assert point.concurrency is not None
        assert (point.engine.running_max or 0) <= SLOTS
        if point.concurrency > SLOTS:
            assert point.engine.running_max == SLOTS
            assert point.engine.waiting_max == point.concurrency - SLOTS
    # As if nobody else had used this machine: numbers that others spoiled count for nothing otherwise.
    quiet = [replace(point, client=replace(point.client, limited=None)) for point in results.points]
    knee = find_knee(quiet)
    assert knee.reached and knee.concurrency is not None
    # a step of the sweep up or down: two cores that others use as well are not a straight line
    assert SLOTS / 2 <= knee.concurrency <= 2 * SLOTS


def test_prefill_and_decode_are_parted(results: Results) -> None:
    single = results.single
    assert isinstance(single, dict)
    lengths = sorted(int(name.removeprefix("ttft_s_at_")) for name in single if name.startswith("ttft_s_at_"))
    assert len(lengths) == 3 and lengths[1:] == [INPUT, 4 * INPUT]
    assert single["prefill_s_per_token"] > 0 and single["decode_tpot_s"] > 0
