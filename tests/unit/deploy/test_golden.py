"""What is rendered is what was reviewed: the golden folders."""

from __future__ import annotations

import pytest
from tests.golden_cases import CASES, GOLDEN, GOLDEN_OF, chart, render

from kilocard.cli.rendered import LIST, Folder
from kilocard.deploy.targets import TARGETS


@pytest.mark.parametrize(("target", "cluster"), CASES)
def test_rendered_files_are_the_golden_ones(target: str, cluster: str) -> None:
    assert Folder(GOLDEN / target / cluster).news(render(target, cluster)) == {}, "scripts/generate-golden writes them"


@pytest.mark.parametrize(("target", "cluster"), CASES)
def test_a_golden_folder_has_nothing_else(target: str, cluster: str) -> None:
    folder = GOLDEN / target / cluster
    there = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    assert there - {LIST} == set(render(target, cluster))


def test_every_target_has_a_golden_folder() -> None:
    assert set(GOLDEN_OF) == set(TARGETS)


@pytest.mark.parametrize(("target", "cluster"), CASES)
def test_rendering_twice_gives_the_same_bytes(target: str, cluster: str) -> None:
    assert render(target, cluster) == render(target, cluster)


@pytest.mark.parametrize(("target", "cluster"), CASES)
def test_files_end_with_a_newline_and_stay_inside_the_folder(target: str, cluster: str) -> None:
    for path, text in render(target, cluster).items():
        assert text.endswith("\n") and not text.endswith("\n\n"), path
        assert not path.startswith("/") and ".." not in path.split("/")


def test_the_chart_in_charts_is_that_of_the_example() -> None:
    assert Folder(GOLDEN.parent.parent / "charts" / "kilocard").news(chart()) == {}
