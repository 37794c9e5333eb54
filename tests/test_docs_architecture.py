"""docs/architecture.md shows the floors as tests/test_layering.py has them, and leads nowhere that is not there."""

from __future__ import annotations

import re
from pathlib import Path

from test_layering import HOUSE

DOCS = Path(__file__).parent.parent / "docs"
PAGE = DOCS / "architecture.md"


def row(name: str) -> str:
    """The first three cells; the fourth, what the room is for, is free text."""
    here = HOUSE[name]
    rooms = ", ".join(sorted(here.rooms, key=list(HOUSE).index))
    if len(here.rooms) == len(HOUSE) - 1:
        rooms = "all"
    return f"| {here.floor}{' P' if here.pure else ''} | `{name}` | {rooms or '–'} |"


def test_the_table_is_the_house() -> None:
    expected = [row(name) for name in HOUSE]
    shown = re.findall(r"^(\| \d(?: P)? \|[^|]*\|[^|]*\|) \w", PAGE.read_text(), re.MULTILINE)
    assert shown == expected, "rows of docs/architecture.md should begin:\n" + "\n".join(expected)


def test_links_in_docs_lead_somewhere() -> None:
    pages = [*DOCS.rglob("*.md"), *DOCS.parent.glob("*.md")]
    for page in pages:
        for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text()):
            if not target.startswith(("http:", "https:", "mailto:")):
                assert (page.parent / target).exists(), f"{page.relative_to(DOCS.parent)} links to {target}"
