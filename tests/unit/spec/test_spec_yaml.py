"""YAML text → plain values: lines, twins, aliases, tags, variables; and texts that are not YAML."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kilocard.core.errors import SpecError
from kilocard.spec.scalars import FromEnvironment, resolve
from kilocard.spec.yaml_document import Document, read_document
from kilocard.spec.yaml_nodes import DEEPEST


def value(text: str, **env: str) -> object:
    document = read_document(text, env=env)
    assert document.found == []
    return document.value


def refused(text: str) -> str:
    with pytest.raises(SpecError) as caught:
        read_document(text)
    return str(caught.value)


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        ("5", 5),
        ("-3", -3),
        ("0x10", 16),
        ("0.5", 0.5),
        ("1e-5", 1e-5),
        (".5", 0.5),
        (".inf", float("inf")),
        ("on", True),
        ("No", False),
        ("null", None),
        ("~", None),
        # YAML 1.1 would make 8, 90 and a date of these.
        ("010", "010"),
        ("1:30", "1:30"),
        ("2024-01-01", "2024-01-01"),
        ("1_000", "1_000"),
        ("7b", "7b"),
        ("9" * 5000, "9" * 5000),
    ],
)
def test_unquoted_words(text: str, meaning: object) -> None:
    assert resolve(text) == meaning
    assert type(resolve(text)) is type(meaning)
    assert value(f"a: {text}") == {"a": meaning}
    assert value(f"a: '{text}'") == {"a": text}


def test_keys_are_text_as_they_are_written() -> None:
    assert value("{1.50: a, on: b, 7b: c, null: d}") == {"1.50": "a", "on": "b", "7b": "c", "null": "d"}


def test_lines_of_all_paths() -> None:
    document = read_document("a:\n  b: 1\n  c:\n    - x\n    - y: 2\n", file="f.yaml")
    assert document.lines == {
        ("a",): "f.yaml:1",
        ("a", "b"): "f.yaml:2",
        ("a", "c"): "f.yaml:3",
        ("a", "c", 0): "f.yaml:4",
        ("a", "c", 1): "f.yaml:5",
        ("a", "c", 1, "y"): "f.yaml:5",
    }
    assert read_document("a: 1").lines == {("a",): 1}


def test_numbers_keep_how_they_were_written() -> None:
    assert read_document("{a: 0.10, b: '0.10', c: x}").texts == {("a",): "0.10"}


def test_twins_among_keys_are_found_and_the_first_is_kept() -> None:
    document = read_document("a: {b: 1}\nc: 2\na: 3\n")
    assert document.value == {"a": {"b": 1}, "c": 2}
    assert document.found == [
        (("a",), "is there twice (first in line 1, again in line 3)", "remove one, or merge them")
    ]


def test_aliases_and_merges() -> None:
    text = """
        x: &x {a: 1, b: 2}
        y: &y {<<: *x, b: 3, c: 4}
        z: {c: 5, <<: [*y, {d: 6}]}
        w: *x
    """
    assert value(text) == {
        "x": {"a": 1, "b": 2},
        "y": {"a": 1, "b": 3, "c": 4},
        "z": {"a": 1, "b": 3, "c": 5, "d": 6},
        "w": {"a": 1, "b": 2},
    }


def test_a_merge_of_no_mapping() -> None:
    assert read_document("a: {<<: 5}").found[0][1] == "merges (<<) something that is no mapping"


def test_a_bomb_of_aliases_is_refused_before_it_costs_anything() -> None:
    rows = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    rows += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]
    assert "expands to more than 1,000,000 values" in refused("\n".join(rows))


def test_depth_through_aliases_counts_too() -> None:
    rows = ["a0: &a0 [x]"] + [f"a{n}: &a{n} [*a{n - 1}]" for n in range(1, 2000)]
    assert refused("\n".join(rows)).startswith(f"line {DEEPEST}: cluster file: is nested deeper than {DEEPEST} levels")
    merges = ["a0: &a0 {x: 1}"] + [f"a{n}: &a{n} {{<<: *a{n - 1}}}" for n in range(1, 2000)]
    assert "is nested deeper than" in refused("\n".join(merges))


@pytest.mark.parametrize("text", ["[" * 5000, "{a: " * 5000, "\n".join(" " * n + "a:" for n in range(500))])
def test_deep_documents(text: str) -> None:
    assert f"is nested deeper than {DEEPEST} levels; make it flatter" in refused(text)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a:\n\tb: 1", "line 2: cluster file: is indented with a tab; use spaces"),
        ("a: [1", "line 2: cluster file: is not YAML: "),
        ("a: 'x", "is not YAML: found unexpected end of stream"),
        ("a: b: c", "line 1: cluster file: is not YAML: mapping values are not allowed"),
        ("a: @b", "put values that begin with @, %"),
        ("a: \x01", "line 1: cluster file: has a character that YAML forbids"),
        ("---\na: 1\n---\nb: 2", "line 3: cluster file: has a second document"),
        ("a: &x [*x]", "line 1: cluster file: uses *x inside itself"),
        ("a: *x", "line 1: cluster file: uses *x, which is defined nowhere above"),
        ("a: !!python/object/apply:os.system [x]", "line 1: cluster file: has the tag tag:yaml.org,2002:python"),
        ("a: !x 1", "line 1: cluster file: has the tag !x"),
        ("- a\nb: 1", "line 2: cluster file: is not YAML"),
    ],
)
def test_texts_that_are_refused(text: str, said: str) -> None:
    message = refused(text)
    assert said in message
    assert "; " in message
    assert "\n" not in message


def test_template_braces_as_a_key() -> None:
    assert read_document("a: {{ x }}").found == [
        (("a",), "has a mapping or a list as a key", "put template braces {{ }} in quotes")
    ]


@pytest.mark.parametrize("text", ["", "# nothing\n", "---\n", "null"])
def test_nothing(text: str) -> None:
    assert read_document(text).value is None


def test_variables() -> None:
    assert value("a: ${A}/b/${B:-none}", A="x") == {"a": "x/b/none"}
    assert value("a: ${A:-1}", A="") == {"a": "1"}
    assert value("a: ${A}", A="") == {"a": ""}
    assert value("a: $${A} $5 $A") == {"a": "${A} $5 $A"}
    assert value("{'${A}': 1}", A="x") == {"${A}": 1}
    assert isinstance(value("'${A}'", A="1"), FromEnvironment)


def test_a_variable_cannot_change_the_shape_of_the_file() -> None:
    assert value("a: ${A}", A="1\nb: 2") == {"a": "1\nb: 2"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: ${A}", "uses ${A}, which is not set; set it, or write ${A:-default}"),
        ("a: ${A", 'has "${A"; write ${NAME} or ${NAME:-default}; $${ for ${'),
        ("a: ${A-b}", 'has "${A-b}"; write ${NAME} or ${NAME:-default}; $${ for ${'),
        ("a: ${}", 'has "${}"; write ${NAME} or ${NAME:-default}; $${ for ${'),
    ],
)
def test_variables_that_do_not_work(text: str, said: str) -> None:
    assert ["; ".join(found[1:]) for found in read_document(text).found] == [said]


@given(st.one_of(st.text(), st.text(alphabet="ab:-[]{}&*<'\"!|>#?,%@` \n\t$", max_size=60)))
def test_any_text_is_a_document_or_an_error_with_advice(text: str) -> None:
    try:
        assert isinstance(read_document(text.encode("utf-8", "replace").decode()), Document)
    except SpecError as error:
        assert "; " in str(error)
