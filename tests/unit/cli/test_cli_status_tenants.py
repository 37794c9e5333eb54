"""Tenants in `kilocard status`: all where they are few, else those nearest to a limit."""

from __future__ import annotations

from typing import Any

from rich.console import Console

from kilocard.cli.fleet_table import FEW, WORST
from kilocard.cli.status_tenants import choose, tenants_table


def tenant(name: str, *used: int, of: int = 1000) -> dict[str, Any]:
    limits = [{"limit": "requests_per_minute", "model": "", "of": of, "used": one} for one in used]
    return {"id": name, "in_flight": 0, "used_this_minute": 0, "limits": limits}


def test_few_tenants_are_all_shown_in_their_order() -> None:
    few = [tenant(f"t{number}", number) for number in range(FEW)]
    assert choose(few, everyone=False) == few


def test_of_many_those_are_shown_that_are_nearest_to_a_limit() -> None:
    many = [tenant(f"t{number}", 0) for number in range(FEW)]
    many += [tenant("over", 5, 1300), tenant("near", 990, 2), tenant("small", 9, of=10)]
    assert [one["id"] for one in choose(many, everyone=False)][:3] == ["over", "near", "small"]
    assert len(choose(many, everyone=False)) == WORST
    assert choose(many, everyone=True) == many


def test_a_line_for_each_limit() -> None:
    page = Console(width=120, markup=False, highlight=False)
    with page.capture() as captured:
        page.print(tenants_table([tenant("team [a]", 5, 1300)]))
    lines = captured.get().splitlines()
    assert len(lines) == 3
    assert lines[1].split()[:2] == ["team", "[a]"] and lines[1].split()[-1] == "995"
    assert lines[2].split() == ["requests_per_minute", "1,300", "1,000", "0"]
