"""What benchmarks/scale_events.py takes for a whole answer, and for a run that went well."""

from __future__ import annotations

from collections import Counter

import pytest
from benchmarks.scale_events import Result, fault

CHUNK = b'data: {"choices":[{"delta":{"content":"a"}}]}\n\n'
USAGE = b'data: {"choices":[],"usage":{"completion_tokens":2}}\n\n'
DONE = b"data: [DONE]\n\n"


def test_a_whole_answer() -> None:
    assert fault(200, CHUNK + CHUNK + USAGE + DONE, 2) == ""


@pytest.mark.parametrize(
    ("status", "body", "said"),
    [
        (503, b"busy", "status 503"),
        (200, b"", "no [DONE]"),
        (200, CHUNK + CHUNK + USAGE, "no [DONE]"),
        (200, CHUNK + b'data: {"error":{"code":"reset"}}\n\n' + DONE, "an error event"),
        (200, CHUNK + CHUNK + DONE, "no tokens"),
        (200, CHUNK + USAGE.replace(b"2", b"1") + DONE, "1 tokens"),
    ],
)
def test_what_is_not(status: int, body: bytes, said: str) -> None:
    assert fault(status, body, 2).startswith(said)


def good() -> Result:
    return Result(answers=100, started=10, drained=10, late=[0.4, 1.1])


def test_a_run_that_went_well_and_what_is_wrong_with_others() -> None:
    assert good().problems(20) == []
    cases = {
        "2 × status 503": {"failures": Counter({"status 503": 2})},
        "only 20 of 30": {},
        "2.5 s after": {"late": [0.1, 2.5]},
        "both grow and shrink": {"started": 20, "drained": 0},
        "engines are left: [7]": {"left": [7]},
    }
    for said, changes in cases.items():
        run = good()
        for key, value in changes.items():
            setattr(run, key, value)
        [problem] = run.problems(30 if "30" in said else 20)
        assert said in problem
