"""What is known of the public traces. Runs where KILOCARD_TRACES names a folder with the files (docs/workloads.md)."""

from __future__ import annotations

import json
import os
from pathlib import Path
from random import Random

import pytest

from kilocard.workload.read import read_trace
from kilocard.workload.reshape import spread, tick_s
from kilocard.workload.summary import Lengths, Summary, summary
from kilocard.workload.trace import Trace

FOLDER = os.environ.get("KILOCARD_TRACES") or None
pytestmark = [
    pytest.mark.traces,
    pytest.mark.skipif(FOLDER is None, reason="KILOCARD_TRACES names no folder with the public traces"),
]


def trace(name: str) -> Trace:
    with (Path(FOLDER or "") / name).open() as lines:
        return read_trace(lines)


def rounded(lengths: Lengths) -> list[int]:
    return [round(value) for value in (lengths.mean, lengths.p50, lengths.p90, lengths.p99, lengths.max)]


def facts(name: str) -> Summary:
    return summary(trace(name).requests)


def test_azure_code_is_bursts_and_silences() -> None:
    found = facts("azure-llm-2023-code.csv")
    assert (found.requests, round(found.rate, 2)) == (8819, 2.57)
    assert rounded(found.input) == [2048, 1469, 5188, 7436, 7437]
    assert rounded(found.output) == [28, 13, 55, 251, 1899]
    assert found.gap_cv == pytest.approx(13.2, abs=0.1)
    assert found.busiest_minute == pytest.approx(10.5, abs=0.05)
    assert found.quietest_minute == 0.25


def test_azure_conversations() -> None:
    found = facts("azure-llm-2023-conv.csv")
    assert (found.requests, round(found.rate, 2)) == (19366, 5.53)
    assert rounded(found.input) == [1155, 1020, 2734, 4142, 14050]
    assert rounded(found.output) == [211, 129, 424, 601, 1000]
    assert found.gap_cv == pytest.approx(1.09, abs=0.01)


def test_mooncake_conversations_tick_every_three_seconds() -> None:
    requests = trace("mooncake-fast25-conversation.jsonl").requests
    found = summary(requests)
    assert (found.requests, round(found.rate, 2)) == (12031, 3.40)
    assert rounded(found.input) == [12035, 6909, 27367, 85400, 126195]
    assert rounded(found.output) == [343, 350, 597, 1119, 2000]
    assert found.prefix_share == pytest.approx(0.366, abs=5e-4)
    assert tick_s(requests) == 3
    assert summary(spread(requests, Random(1))).gap_cv == pytest.approx(1, abs=0.05)


def test_mooncake_synthetic() -> None:
    found = facts("mooncake-fast25-synthetic.jsonl")
    assert (found.requests, round(found.rate, 2)) == (3993, 3.91)
    assert rounded(found.input) == [15325, 11587, 38611, 66456, 191378]
    # 64.0 % with the ids of partial blocks, which this file shares and no engine does
    assert found.prefix_share == pytest.approx(0.638, abs=5e-4)


@pytest.mark.parametrize(("name", "share"), [("conversation", 0.366), ("synthetic", 0.640)])
def test_share_with_partial_blocks_is_the_one_that_is_quoted(name: str, share: float) -> None:
    seen: set[int] = set()
    found = asked = 0
    for line in (Path(FOLDER or "") / f"mooncake-fast25-{name}.jsonl").read_text().splitlines():
        ids = json.loads(line)["hash_ids"]
        asked += len(ids)
        found += next((place for place, each in enumerate(ids) if each not in seen), len(ids))
        seen.update(ids)
    assert found / asked == pytest.approx(share, abs=5e-4)
