"""The endpoints file: all of it or nothing."""

from __future__ import annotations

import pytest

from kilocard.core.errors import SpecError
from kilocard.core.replica import Endpoint
from kilocard.scrape.discovery.endpoints_file import read_endpoints

POOLS = ("small", "large")


@pytest.mark.parametrize(
    "text",
    [
        "small: [http://10.0.0.1:8000, 'http://[::1]:8000']\nlarge: []\n",
        '{"small": ["http://10.0.0.1:8000/", "http://[::1]:8000"]}',
    ],
)
def test_yaml_and_json(text: str) -> None:
    assert read_endpoints(text, POOLS, "f") == {
        "small/10.0.0.1:8000": Endpoint("small/10.0.0.1:8000", "small", "http://10.0.0.1:8000"),
        "small/[::1]:8000": Endpoint("small/[::1]:8000", "small", "http://[::1]:8000"),
    }


def test_no_replicas_on_purpose() -> None:
    assert read_endpoints("{}", POOLS, "f") == {}


@pytest.mark.parametrize("text", ["", "\n# nothing\n", "- a\n", "small", "small: {a", "small: http://h:1\n"])
def test_what_is_no_such_file_is_refused(text: str) -> None:
    with pytest.raises(SpecError):
        read_endpoints(text, POOLS, "f")


def test_all_problems_are_told_with_their_lines() -> None:
    with pytest.raises(SpecError) as caught:
        read_endpoints("smal: []\nlarge:\n  - ftp://h:1\n  - http://h:1\n  - 5\n", POOLS, "f.yaml")
    text = str(caught.value)
    assert "did you mean small" in text
    assert "f.yaml:3" in text
    assert "f.yaml:5" in text
