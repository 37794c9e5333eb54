"""docs/decision-log.md has every kind of line that a decision log can have."""

from __future__ import annotations

from markdown_pages import ROOT

from kilocard.dispatch.record import INSTRUCTIONS, KINDS


def test_every_event_and_decision_is_on_the_page() -> None:
    page = (ROOT / "docs" / "decision-log.md").read_text()
    kinds = {*KINDS, *INSTRUCTIONS.values()}
    assert [kind for kind in sorted(kinds) if f"`{kind}`" not in page] == []
