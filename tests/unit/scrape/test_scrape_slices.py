"""EndpointSlices, as the API reference describes them and as odd ones come."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kilocard.scrape.slices import Member, State, best, members


def piece(*endpoints: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"addressType": "IPv4", "ports": [{"name": "http", "port": 8000}], "endpoints": list(endpoints), **fields}


def pod(name: str = "w-0", address: str = "10.0.0.1", **conditions: Any) -> dict[str, Any]:
    return {"addresses": [address], "targetRef": {"kind": "Pod", "name": name}, "conditions": conditions}


@pytest.mark.parametrize(
    ("conditions", "state"),
    [
        ({}, State.READY),
        ({"ready": True, "serving": True, "terminating": False}, State.READY),
        ({"ready": None}, State.READY),
        ({"ready": False}, State.NOT_READY),
        ({"ready": False, "serving": True, "terminating": True}, State.TERMINATING),
        # publishNotReadyAddresses: ready whatever happens
        ({"ready": True, "terminating": True}, State.TERMINATING),
    ],
)
def test_conditions(conditions: dict[str, Any], state: State) -> None:
    assert members(piece(pod(**conditions)), "p", None) == [Member("p/w-0", "http://10.0.0.1:8000", state, 4)]


def test_an_endpoint_without_a_pod_is_known_by_its_address() -> None:
    found = members(piece({"addresses": ["fd00::1"]}, addressType="IPv6"), "p", None)
    assert found == [Member("p/[fd00::1]:8000", "http://[fd00::1]:8000", State.READY, 6)]


@pytest.mark.parametrize(
    ("wanted", "number"), [(None, 8000), ("metrics", 9000), (7000, 7000), ("other", None), ("dns", None)]
)
def test_ports(wanted: str | int | None, number: int | None) -> None:
    ports = [{"name": "dns", "port": 53, "protocol": "UDP"}, {"name": "http", "port": 8000}]
    ports.append({"name": "metrics", "port": 9000, "protocol": "TCP"})
    found = members(piece(pod(), ports=ports), "p", wanted)
    assert [member.url for member in found] == ([f"http://10.0.0.1:{number}"] if number else [])


def test_names_instead_of_addresses_are_left_out() -> None:
    assert members(piece(pod(address="db.example.com"), addressType="FQDN"), "p", None) == []


def test_a_pod_in_two_slices_is_one_replica() -> None:
    old = members(piece(pod(ready=False)), "p", None)
    new = members(piece(pod(ready=True)), "p", None)
    six = members(piece(pod(address="fd00::1"), addressType="IPv6"), "p", None)
    for order in ([old, new, six], [six, new, old], [new, old, six]):
        assert best(order) == {"p/w-0": new[0]}


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["addresses", "ports", "port", "endpoints", "conditions", "targetRef", "kind", "name"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@settings(max_examples=150)
@given(odd=st.dictionaries(st.sampled_from(["addressType", "ports", "endpoints"]), JSON))
def test_no_json_breaks_it(odd: dict[str, Any]) -> None:
    members(piece(pod(), **odd), "p", None)
    members({"addressType": "IPv4", "ports": [{"port": 1}], "endpoints": [odd, 1, None]}, "p", "x")
