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
    formula = (
        f"{QUEUE_WEIGHT:.0f} × waiting + n + F + prefill tokens/{1 / PREFILL_PER_REQUEST:.0f}"
        f" + output tokens/{1 / DECODE_PER_REQUEST:.0f} + {KV_WEIGHT:.0f} × KV use + handicap"
    )
    assert formula in ROUTING


def test_every_invariant_is_named_in_a_test() -> None:
    numbers = re.findall(r"^\| (INV-\d+) \|", (ROOT / "docs" / "invariants.md").read_text(), re.MULTILINE)
    assert numbers == [f"INV-{n}" for n in range(1, len(numbers) + 1)]
    tests = "".join(path.read_text() for path in Path(__file__).parent.glob("test_*.py") if path != Path(__file__))
    for number in numbers:
        assert re.search(rf"{number}\b", tests), f"{number} has no test"
