"""Names and labels are what Kubernetes takes, whatever pools and tenants are called."""

from __future__ import annotations

import re

import pytest
from clusters import cluster, everything
from hypothesis import example, given
from hypothesis import strategies as st

from kilocard.core.errors import UsageError
from kilocard.deploy.kubernetes.names import label, object_name
from kilocard.deploy.kubernetes.quantities import cores, quantity
from kilocard.spec.vocabulary import NAME, POOL_NAME

POOLS = st.from_regex(re.compile(POOL_NAME, re.ASCII), fullmatch=True)
TENANTS = st.from_regex(NAME, fullmatch=True)


@given(POOLS)
def test_an_objects_name_is_a_dns_label_with_room_behind_it(pool: str) -> None:
    for name in (object_name(pool), object_name(pool, "group")):
        assert re.fullmatch(r"kilocard-[a-z0-9]([a-z0-9-]*[a-z0-9])?", name) and len(name) <= 47


@given(POOLS, POOLS)
def test_two_pools_have_two_names(one: str, other: str) -> None:
    assert (object_name(one) == object_name(other)) is (one == other)


@given(POOLS | TENANTS)
def test_a_label_is_one(name: str) -> None:
    assert re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?", label(name))


@given(TENANTS, TENANTS)
@example("0", "-0")
def test_two_tenants_have_two_labels(one: str, other: str) -> None:
    assert (label(one) == label(other)) is (one == other)


def test_a_name_that_is_one_already_stays() -> None:
    assert object_name("qwen-7b-v1") == "kilocard-qwen-7b-v1" and label("Qwen_7B.v1") == "Qwen_7B.v1"


def test_a_pool_that_is_called_like_anothers_group_is_refused() -> None:
    keys = "engine: vllm, version: 0.32.0, model: m/m"
    with pytest.raises(UsageError, match="would both be called kilocard-a-group"):
        everything(cluster(f"a: {{{keys}, gpus: {{tensor: 16}}}}\na-group: {{{keys}}}"))


@pytest.mark.parametrize(("number", "written"), [(4.0, "4"), (0.5, "500m"), (1.25, "1250m"), (0.0001, "1m")])
def test_cores(number: float, written: str) -> None:
    assert cores(number) == written


@pytest.mark.parametrize(
    ("size", "written"),
    [(2**40, "1024Gi"), (48 * 2**30, "48Gi"), (1536 * 2**20, "1536Mi"), (1024, "1Ki"), (1000, "1000")],
)
def test_quantities(size: int, written: str) -> None:
    assert quantity(size) == written
