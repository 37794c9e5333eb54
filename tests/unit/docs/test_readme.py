"""Both READMEs say the same, and nothing on any page leads to a command, file or heading that is not there."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main
from markdown_pages import ROOT, anchors, blocks, pages, without_blocks

from kilocard.cli.main import app
from kilocard.spec.parse import parse
from kilocard.spec.yaml_document import read_document

ENGLISH = (ROOT / "README.md").read_text()
CHINESE = (ROOT / "README.zh-CN.md").read_text()
PAGES = pages()
LINK = re.compile(r"\]\(([^)\s]+)\)")


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


# --- README -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", [ENGLISH, CHINESE], ids=["English", "Chinese"])
def test_the_two_commands_that_set_everything_up(text: str) -> None:
    commands = [block for language, block in blocks(text) if language == "sh"]
    assert commands[0] == "pip install '.[local]' && kilocard up\n"
    assert "pip install '.[test]' && scripts/test\n" in commands


def test_both_languages_have_the_same_blocks() -> None:
    assert blocks(CHINESE) == blocks(ENGLISH)


def test_both_languages_have_the_same_links_and_sections() -> None:
    def links(text: str) -> list[str]:
        return [link for link in LINK.findall(text) if not link.startswith("README")]

    assert links(CHINESE) == links(ENGLISH)
    assert len(re.findall("^## ", CHINESE, re.MULTILINE)) == len(re.findall("^## ", ENGLISH, re.MULTILINE))


def test_it_can_be_read_in_one_go() -> None:
    assert len(ENGLISH.splitlines()) < 200


def rows(text: str) -> dict[str, list[str]]:
    """Table rows by their first cell, without ranges in brackets and bold marks."""
    found = {}
    for line in text.splitlines():
        if line.startswith("| ") and line.count("|") > 4:
            cells = [re.sub(r"\(.*?\)|\*", "", cell).strip() for cell in line.strip("|").split("|")]
            found.setdefault(cells[0], cells[1:])
    return found


@pytest.mark.parametrize("proxy", ["nginx", "kilocard", "vllm-router", "kilocard-compiled"])
def test_numbers_are_those_of_the_benchmark(proxy: str) -> None:
    """Fix: copy the row's µs/request, × nginx, µs/chunk and × nginx from benchmarks/README.md to both READMEs."""
    measured = rows((ROOT / "benchmarks" / "README.md").read_text())[proxy]
    for text in (ENGLISH, CHINESE):
        assert rows(text)[proxy] == [measured[place] for place in (0, 1, 4, 5)]


# --- commands on all pages --------------------------------------------------------------------------------------


def commands_in(text: str) -> Iterator[str]:
    """What stands in shell blocks and between back-quotes and begins with kilocard, placeholders aside."""
    for language, block in blocks(text):
        if language == "sh":
            joined = block.replace("\\\n", " ")
            yield from re.findall(r"(?:^|&& |\$\()(kilocard [^|>)&#\n]*)", joined, re.MULTILINE)
    yield from re.findall(r"`(kilocard [a-z][^`…|]*)`", without_blocks(text))


def check(command: str) -> None:
    """Raises AssertionError where the program has no such command or option."""
    here: Any = typer.main.get_command(app)
    words = shlex.split(command, comments=True)[1:]
    while words and getattr(here, "commands", None) is not None:
        word = words.pop(0)
        if word.startswith("-"):
            return  # the program's own options
        assert word in here.commands, f"no command {word!r}"
        here = here.commands[word]
    options = {option for param in here.params for option in param.opts} | {"--help", "-h"}
    for word in words:
        if word.startswith("-") and word != "-":  # that one is stdin
            assert word.partition("=")[0] in options, f"no option {word!r}"


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_commands_exist(page: Path) -> None:
    for command in commands_in(page.read_text()):
        try:
            check(command)
        except AssertionError as error:
            pytest.fail(f"{name(page)}: {command}: {error}")


def test_the_check_of_commands_can_fail() -> None:
    check("kilocard up --port 1 cluster.yaml")
    for command in ("kilocard fly", "kilocard up --wings", "kilocard model grow"):
        with pytest.raises(AssertionError):
            check(command)


@pytest.mark.parametrize("page", [ROOT / "README.md", ROOT / "docs" / "quickstart.md"], ids=name)
def test_cluster_files_are_good_ones(page: Path) -> None:
    for language, block in blocks(page.read_text()):
        if language == "yaml":
            assert parse(read_document(block).value).pools


# --- links ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_lead_somewhere(page: Path) -> None:
    for link in LINK.findall(without_blocks(page.read_text())):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, fragment = link.partition("#")
        target = page.parent / path if path else page
        assert target.exists(), f"{name(page)} links to {link}"
        if fragment:
            assert fragment in anchors(target.read_text()), (
                f"{name(page)}: {target.name} has no heading for #{fragment}"
            )


def test_every_page_is_in_the_reading_order() -> None:
    index = (ROOT / "docs" / "index.md").read_text()
    decisions = (ROOT / "docs" / "decisions" / "README.md").read_text()
    for page in (ROOT / "docs").rglob("*.md"):
        path = page.relative_to(ROOT / "docs")
        if path.parts[0] == "decisions" and page.name != "README.md":
            assert f"({page.name})" in decisions, f"docs/decisions/README.md does not list {page.name}"
        elif page.name != "index.md":
            assert f"({path})" in index, f"docs/index.md does not list {path}"
