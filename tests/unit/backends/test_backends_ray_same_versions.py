"""Nodes have to be the same where it matters, and the error says which is not, and in what."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kilocard.backends.ray.same_versions import NodeFacts, check, differences
from kilocard.core.errors import BackendError


def node(name: str, **versions: str) -> NodeFacts:
    return NodeFacts(name, versions)


def test_one_machine_of_twelve_with_another_driver() -> None:
    facts = [node(f"gpu-{number:02} (10.0.0.{number})", driver="535.104.05", python="3.11.7") for number in range(12)]
    facts[7] = node("gpu-07 (10.0.0.7)", driver="550.54.14", python="3.11.7")
    with pytest.raises(BackendError) as error:
        check(facts)
    assert "NVIDIA driver: 535.104.05 on 11 nodes, but 550.54.14 on gpu-07 (10.0.0.7)" in str(error.value)
    assert "Python" not in str(error.value)


def test_engines_are_compared_by_pool() -> None:
    """Two pools may run two versions; one pool may not."""
    facts = [
        NodeFacts("a", {}, {"old": {"vllm": "0.31.0"}, "new": {"vllm": "0.32.0"}}),
        NodeFacts("b", {}, {"old": {"vllm": "0.31.0"}}),
    ]
    check(facts)
    odd = NodeFacts("c", {}, {"new": {"vllm": "0.31.0", "torch": "2.13.0"}})
    assert [str(one) for one in differences([*facts, odd])] == ["vllm of pool new: 0.32.0 on 1 node, but 0.31.0 on c"]


def test_unknown_is_not_different() -> None:
    check([node("gpu", driver="535", ray="2.60.0"), node("head", ray="2.60.0")])
    check([])


def test_of_two_the_first_is_taken_for_right() -> None:
    [one] = differences([node("known", ray="2.60.0"), node("new", ray="2.59.0")])
    assert one.others == {"new": "2.59.0"}


VERSIONS = st.dictionaries(st.sampled_from(["ray", "python", "driver"]), st.sampled_from(["1", "2", "3"]))


@given(st.lists(VERSIONS, max_size=8))
def test_every_difference_names_exactly_the_nodes_that_are_not_usual(versions: list[dict[str, str]]) -> None:
    facts = [NodeFacts(f"n{number}", one) for number, one in enumerate(versions)]
    found = {one.what: one for one in differences(facts)}
    for name, title in (("ray", "Ray"), ("python", "Python"), ("driver", "NVIDIA driver")):
        known = {one.node: one.versions[name] for one in facts if name in one.versions}
        if len(set(known.values())) < 2:
            assert title not in found
            continue
        one = found[title]
        counts = [list(known.values()).count(version) for version in known.values()]
        assert one.others == {node: version for node, version in known.items() if version != one.usual}
        assert one.count == max(counts) == list(known.values()).count(one.usual)
