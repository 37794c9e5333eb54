"""docs/routing.md and docs/invariants.md say what the code does."""

from __future__ import annotations

import re
from pathlib import Path

from kilocard.dispatch.health import TRANSITIONS
from kilocard.routing.queue_depth import DECODE_PER_REQUEST, KV_WEIGHT, PREFILL_PER_REQUEST, QUEUE_WEIGHT
from kilocard.routing.registry import POLICIES

ROOT = Path(__file__).parents[3]
ROUTING = (ROOT / "docs" / "routing.md").read_text()


def test_transition_table() -> None:
    """Paste the right-hand side into the page when the table has changed."""
    table = "".join(f"| {a.value} | {s.value} | {b.value} |\n" for (a, s), b in TRANSITIONS.items())
    assert ROUTING.split("| state | signal | next |\n|---|---|---|\n")[1].split("\n\n")[0] + "\n" == table


def test_policies_and_constants() -> None:
    for name in POLICIES:
        assert f"`{name}`" in ROUTING
    own = (
        f"n + prefill tokens/{1 / PREFILL_PER_REQUEST:.0f} + output tokens/{1 / DECODE_PER_REQUEST:.0f}"
        f" + {KV_WEIGHT:.0f} × own KV share + handicap"
    )
    gauges = f"belief × ({QUEUE_WEIGHT:.0f} × waiting + F + {KV_WEIGHT:.0f} × KV use beyond our own)"
    assert own in ROUTING and gauges in ROUTING


def test_every_invariant_is_named_in_a_test_and_names_one_that_exists() -> None:
    page = (ROOT / "docs" / "invariants.md").read_text()
    rows = [row.strip("|").split(" | ") for row in re.findall(r"^\| (?:INV|SIM|GW)-\d+ \|.*\|$", page, re.MULTILINE)]
    files = {path: path.read_text() for path in (ROOT / "tests").rglob("test_*.py") if path != Path(__file__)}
    source = "\n".join(files.values())
    numbers: dict[str, list[int]] = {}
    for number, _, tests in rows:
        kind, _, count = number.strip().partition("-")
        numbers.setdefault(kind, []).append(int(count))
        named = re.findall(r"`(\w+)`", tests)
        assert named, f"{number} names no test"
        for name in named:
            assert re.search(rf"^(?:    )?(?:async )?def {name}\(|^{name} = ", source, re.MULTILINE), (
                f"there is no {name}"
            )
        where = [text for text in files.values() if any(name in text for name in named)]
        assert any(re.search(rf"\b{number.strip()}\b", text) for text in where), f"no test speaks of {number}"
    for kind, counts in numbers.items():
        assert counts == list(range(1, len(counts) + 1)), kind
    assert set(numbers) == {"INV", "SIM", "GW"}
