"""What `kilocard status` prints of scaling."""

from __future__ import annotations

from typing import Any

from rich.text import Text

from kilocard.cli.status_scaling import lines


def shown(**more: Any) -> str:
    scaling: dict[str, Any] = {
        "controller": {
            "leads": True, "leader": {"host": "here", "pid": 7, "since": 0.0}, "looks": 9, "looked_ago_s": 0.4,
            "errors": {}, "problems": [],
        },
        "pools": [
            {
                "pool": "p", "min": 1, "max": 8, "wanted": 3, "reason": "above",
                "sentence": "23 requests wait per replica", "pending": [], "replicas": {"ready": 2, "failing": 0},
            }
        ],
        "events": [],
    }  # fmt: skip
    for key, value in more.items():
        parts = (scaling["controller"], scaling["pools"][0], scaling)
        next(part for part in parts if key in part)[key] = value
    return "\n".join(Text.from_markup(line).plain for line in lines(scaling))


def test_a_line_for_the_controller_and_one_for_each_pool() -> None:
    assert shown() == (
        "controller leads, looked 0.4 s ago\nscaling p: 2 ready, wants 3 of 1–8; above: 23 requests wait per replica"
    )


def test_errors_problems_and_a_controller_that_is_stuck_are_said() -> None:
    text = shown(errors={"start": 3}, problems=["http://g:8001: refused"], looked_ago_s=60.0)
    assert "looked 60.0 s ago, errors: start 3\n  http://g:8001: refused" in text
    assert "has not looked yet" in shown(looked_ago_s=None)


def test_one_that_stands_by_says_who_leads() -> None:
    assert shown(leads=False) == "controller stands by: pid 7 on here leads"


def test_what_can_not_be_started_yet_and_what_was_done_last() -> None:
    event = {"ago_s": 300.0, "kind": "error", "pool": "p", "replica": "", "text": "start: [fire]", "count": 4}
    text = shown(pending=[{"since_s": 75.0, "reason": "needs 1 GPU, 0 of 2 free", "tries": 9}], events=[event])
    assert "one more is wanted for 75 s: needs 1 GPU, 0 of 2 free" in text
    assert text.endswith("5 min ago p error (4 times): start: [fire]")


def test_a_pool_at_zero_and_one_that_nobody_has_looked_at() -> None:
    assert "scaling p: no replica, wants 3" in shown(replicas={"ready": 0})
    assert "scaling p (1–8): not decided yet" in shown(wanted=None)


def test_a_lease_that_cant_be_asked_is_not_somebody_else_who_leads() -> None:
    event = {"ago_s": 1.0, "kind": "error", "pool": "", "replica": "", "text": "lease: OSError", "count": 3}
    assert shown(leads=False, leader=None, errors={"lease": 3}, events=[event]) == (
        "controller does not decide: its lease can't be asked\n  1 s ago error (3 times): lease: OSError"
    )
