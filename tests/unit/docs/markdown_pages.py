"""What the tests of this folder read out of Markdown files."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[3]

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def pages() -> list[Path]:
    """Every Markdown file that is for people."""
    below = [page for folder in ("docs", "benchmarks", "examples") for page in (ROOT / folder).rglob("*.md")]
    return sorted([*ROOT.glob("*.md"), *below])


def blocks(text: str) -> list[tuple[str, str]]:
    """Fenced blocks: (language, text)."""
    return _FENCE.findall(text)


def without_blocks(text: str) -> str:
    return _FENCE.sub("", text)


def anchors(text: str) -> set[str]:
    """The fragments that a page's headings can be linked by, made as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", without_blocks(text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}
