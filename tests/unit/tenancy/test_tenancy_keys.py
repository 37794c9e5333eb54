"""Keys of several sources become one table: the strictest word wins, strangers' keys are ignored and named."""

from __future__ import annotations

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kilocard.core.errors import SpecError
from kilocard.spec.model import TenantSpec
from kilocard.tenancy.access import Access
from kilocard.tenancy.keys import Key, cluster_keys, digest_of, merged
from kilocard.tenancy.keys_file import read_keys

A, B, C = (hashlib.sha256(name.encode()).digest() for name in "abc")
DECLARED = {"team-a", "team-b"}


def written(digest: bytes) -> str:
    return "sha256:" + digest.hex()


def test_sources_are_added_up() -> None:
    keys = merged(DECLARED, [[Key(A, "team-a")], [Key(B, "team-b")], [Key(C, "team-a")]], 0.0)
    assert keys.tenants == {A: "team-a", B: "team-b", C: "team-a"}
    assert (keys.expires, keys.undeclared, keys.contested) == (None, [], 0)


def test_keys_of_undeclared_tenants_are_ignored_and_named_once() -> None:
    keys = merged(DECLARED, [[Key(A, "x"), Key(B, "x")], [Key(C, "team-a")]], 0.0)
    assert keys.tenants == {C: "team-a"} and keys.undeclared == ["x"]


@pytest.mark.parametrize("order", [1, -1])
def test_a_revoked_key_is_refused_wherever_else_it_stands(order: int) -> None:
    sources = [[Key(A, "team-a")], [Key(A, "team-a", revoked=True)]]
    assert merged(DECLARED, sources[::order], 0.0).tenants == {}
    # even if the store knows it under a name that is gone
    sources = [[Key(A, "team-a")], [Key(A, "gone", revoked=True)]]
    assert merged(DECLARED, sources[::order], 0.0).tenants == {}


@pytest.mark.parametrize("order", [1, -1])
def test_of_two_times_of_expiry_the_earlier_counts(order: int) -> None:
    sources = [[Key(A, "team-a", 50.0)], [Key(A, "team-a")], [Key(A, "team-a", 40.0)]][::order]
    assert merged(DECLARED, sources, 39.9) == ({A: "team-a"}, 40.0, [], 0)
    assert merged(DECLARED, sources, 40.0).tenants == {}


def test_a_key_of_two_tenants_is_the_first_sources() -> None:
    keys = merged(DECLARED, [[Key(A, "team-b")], [Key(A, "team-a")]], 0.0)
    assert keys.tenants == {A: "team-b"} and keys.contested == 1


def test_the_next_expiry_is_that_of_a_key_that_is_still_good() -> None:
    keys = merged(DECLARED, [[Key(A, "team-a", 10.0), Key(B, "team-a", 30.0), Key(C, "team-a", 20.0, True)]], 15.0)
    assert keys.tenants == {B: "team-a"} and keys.expires == 30.0


one_key = st.builds(
    Key,
    st.sampled_from([A, B, C]),
    st.sampled_from(["team-a", "team-b", "x"]),
    st.none() | st.integers(0, 9).map(float),
    st.booleans(),
)


@given(st.lists(st.lists(one_key, max_size=4), max_size=4), st.integers(0, 10))
def test_whoever_gets_in_is_good_in_every_source(sources: list[list[Key]], now: int) -> None:
    keys = merged(DECLARED, sources, float(now))
    everything = [key for source in sources for key in source]
    for digest, tenant in keys.tenants.items():
        said = [key for key in everything if key.digest == digest]
        assert tenant in DECLARED and tenant in {key.tenant for key in said}
        assert not any(key.revoked for key in said)
        assert all(key.expires is None or key.expires > now for key in said if key.tenant in DECLARED)
    assert keys.expires is None or keys.expires > now
    # nobody is forgotten either
    for key in everything:
        same = [other for other in everything if other.digest == key.digest]
        if key.tenant in DECLARED and all(not one.revoked and one.expires is None for one in same):
            assert key.digest in keys.tenants


def test_the_cluster_files_own_keys() -> None:
    tenants = {"team-a": TenantSpec("team-a", keys=(written(A), written(B)))}
    assert list(cluster_keys(tenants)) == [Key(A, "team-a"), Key(B, "team-a")]
    assert digest_of(written(A)) == A


def test_an_access_of_merged_keys_asks_them_and_no_others() -> None:
    tenants = {"team-a": TenantSpec("team-a", keys=(written(B),)), "team-b": TenantSpec("team-b")}
    access = Access(tenants, {A: "team-b"})
    assert access.who(b"Bearer a", None).name == "team-b"
    with pytest.raises(Exception, match="not known"):
        access.who(b"Bearer b", None)


# --- the keys file


def test_a_keys_file() -> None:
    text = (
        f"team-a: [{written(A)}, '{written(B).replace('sha256:', 'sha256:').upper().replace('SHA', 'sha')}']\n'7': []\n"
    )
    assert read_keys(text, "keys.yaml") == (Key(A, "team-a"), Key(B, "team-a"))
    assert read_keys("{}", "keys.yaml") == ()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "empty"),
        ("# nothing but a comment\n", "empty"),
        ("just text", "is text"),
        ("- a", "is a list"),
        ("team-a: sha256:00", "not a list of hashes"),
        ("team-a:\n", "empty, not a list"),
        ("team-a: [kc-secret]", "is no hash"),
        ("team-a: [sha256:secret]", "is no SHA-256 hash"),
        ("team-a: [7]", "not a key's hash"),
        ("team-a: []\nteam-a: []", "is there twice"),
        (f"team-a: [{written(A)}", "keys.yaml"),
        ("team-a: ['kc-secret", "keys.yaml"),
        ("kc-secret: ]", "keys.yaml"),
    ],
)
def test_a_bad_keys_file_is_refused_whole_and_no_value_is_repeated(text: str, said: str) -> None:
    with pytest.raises(SpecError) as caught:
        read_keys(text, "keys.yaml")
    assert said in caught.value.message
    assert "kc-secret" not in caught.value.message or text.startswith("kc-secret")


def test_all_problems_are_said_at_once_with_their_lines() -> None:
    with pytest.raises(SpecError) as caught:
        read_keys(f"a: 1\nb: [{written(A)}, x]\nc: [y]\n", "keys.yaml")
    assert [line.split(": ")[0] for line in caught.value.message.splitlines()] == [
        "keys.yaml:1",
        "keys.yaml:2",
        "keys.yaml:3",
    ]


@given(st.text(max_size=60))
def test_any_text_is_keys_or_a_spec_error(text: str) -> None:
    try:
        assert isinstance(read_keys(text, "f"), tuple)
    except SpecError as error:
        assert error.message


def test_a_key_without_a_tenant_is_a_mistake() -> None:
    with pytest.raises(SpecError, match="no name of a tenant"):
        read_keys("'': ['sha256:" + "0a" * 32 + "']", "keys.yaml")
