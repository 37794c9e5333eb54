"""A thousand replicas fit on a screen: a line for each pool, and those that need a look."""

from __future__ import annotations

from typing import Any

from rich.console import Console

from kilocard.cli.fleet_table import FEW, WORST, choose, left_out, pools_table, replicas_table, trouble


def replica(number: int, **said: Any) -> dict[str, Any]:
    plain = {
        "id": f"p/r-{number:04}", "pool": "p", "state": "ready", "reason": "", "in_flight": 2, "running": 2.0,
        "waiting": 0.0, "kv_usage": 0.25, "age_s": 0.5, "url": f"http://127.0.0.1:{10000 + number}",
    }  # fmt: skip
    return plain | said


def printed(table: object, width: int = 160) -> str:
    console = Console(width=width, highlight=False, markup=False)
    with console.capture() as capture:
        console.print(table)
    return capture.get()


def test_few_replicas_are_all_shown_in_their_order() -> None:
    fleet = [replica(number) for number in range(FEW - 1)] + [replica(999, state="ejected")]
    assert choose(fleet, everyone=False) == fleet


def test_of_a_thousand_the_ones_in_trouble_are_shown_worst_first() -> None:
    fleet = [replica(number) for number in range(1000)]
    fleet[700] = replica(700, state="ejected", reason="consecutive: connect")
    fleet[300] = replica(300, state="overheated", waiting=6.0)
    fleet[500] = replica(500, age_s=None, scrape_error="connection refused")
    fleet[100] = replica(100, state="draining")
    fleet[900] = replica(900, waiting=2.0)
    shown = choose(fleet, everyone=False)
    assert len(shown) == WORST
    assert [each["id"] for each in shown[:6]] == [
        "p/r-0700", "p/r-0300", "p/r-0500", "p/r-0100", "p/r-0900", "p/r-0000"
    ]  # fmt: skip
    assert choose(fleet, everyone=True) == fleet


def test_the_rest_is_counted() -> None:
    fleet = [replica(number) for number in range(990)] + [replica(n, state="ejected") for n in range(990, 1020)]
    said = left_out(fleet, WORST)
    assert said == "1,000 more: 990 ready, 10 ejected. --all shows them, --pool NAME those of one pool."


def test_a_pool_is_a_line_with_sums_and_extremes() -> None:
    fleet = [replica(number) for number in range(998)]
    fleet += [replica(998, kv_usage=0.97, waiting=3.0, age_s=2.25), replica(999, state="ejected", age_s=None)]
    fleet += [replica(5000, pool="q", running=None, waiting=None, kv_usage=None, age_s=None)]
    lines = [" ".join(line.split()) for line in printed(pools_table(fleet)).splitlines()]
    assert lines == [
        "pool replicas ready in flight running waiting KV KV most oldest others",
        "p 1,000 999 2,000 2,000 3 25% 97% 2.2 s 1 ejected",
        "q 1 1 2 ? ? ? ? ?",
    ]


def test_a_narrow_terminal_has_no_addresses() -> None:
    assert "127.0.0.1" in printed(replicas_table([replica(1)], 160))
    assert "127.0.0.1" not in printed(replicas_table([replica(1)], 80), 80)


def test_what_passes_by_itself_is_less_trouble_than_what_is_broken_or_not_read() -> None:
    order = ["ejected", "overheated", "ready", "draining"]
    fleet = [replica(1, state=state, age_s=9.0 if state == "ready" else 0.5) for state in reversed(order)]
    assert [each["state"] for each in sorted(fleet, key=trouble)] == order


def test_an_address_and_a_reason_are_no_markup() -> None:
    """Rich takes [fd00::1] for a style that it does not know, and [/path] for the end of one."""
    said = printed(replicas_table([replica(1, url="http://[fd00::1]:8000", reason="no [/model] in [red]")], 160))
    assert "[fd00::1]:8000" in said
    assert "no [/model] in [red]" in said
