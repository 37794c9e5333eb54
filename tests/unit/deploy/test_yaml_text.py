"""YAML as others read it."""

from __future__ import annotations

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from kilocard.deploy.yaml_text import yaml_documents, yaml_text

PLAIN = st.text(st.characters(blacklist_categories=("Cs", "Cc"), whitelist_characters="\n\t"), max_size=30)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | PLAIN,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(PLAIN, inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(PLAIN, VALUES, max_size=4))
def test_what_is_written_is_read_again(document: dict[str, object]) -> None:
    assert yaml.safe_load(yaml_text(document, "a head\nof two lines")) == document


@pytest.mark.parametrize(
    "text",
    ["1e3", "1E-3", "0o17", "0x1F", "0b1", "1_000", "007", "1.", ".5", "+.inf", ".nan", "y", "N", "Yes", "off", "TRUE",
     "null", "~", "", "-1", "8000", "0.85"],
)  # fmt: skip
def test_text_stays_text_for_every_reader(text: str) -> None:
    """Go's reader, which Kubernetes and Helm have, takes 1e3 for a number; PyYAML's does not and writes it bare."""
    assert yaml_text({"a": text}) == f"a: '{text}'\n"


@pytest.mark.parametrize("text", ["0.32.0", "a1", "1a", "1.2.3", "yesterday", "e3", "--port", "0.0.0.0:8000"])
def test_other_text_is_bare(text: str) -> None:
    assert yaml_text({"a": text}) == f"a: {text}\n"


def test_lines_are_a_block() -> None:
    assert yaml_text({"a": "one\ntwo\n"}) == "a: |\n  one\n  two\n"


def test_documents_are_apart() -> None:
    assert yaml_documents([{"a": 1}, {"b": 2}], "head") == "# head\na: 1\n---\nb: 2\n"


@pytest.mark.parametrize("text", ["~\x85", "a\x85b", "a\u2028", "a\r\nb", "\u2029x\ny"])
@pytest.mark.parametrize("loader", [yaml.SafeLoader, getattr(yaml, "CSafeLoader", yaml.SafeLoader)])
def test_no_end_of_a_line_is_lost(text: str, loader: type[yaml.SafeLoader]) -> None:
    assert yaml.load(yaml_text({"a": text}), loader) == {"a": text}
