"""Durations, sizes, shares, addresses: what is read, and what is said of the rest."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kilocard.spec import units
from kilocard.spec.units import Address, UnitError


@pytest.mark.parametrize(
    ("written", "seconds"),
    [
        ("30s", 30.0),
        ("5m", 300.0),
        ("1h30m", 5400.0),
        ("1h 30m", 5400.0),
        ("250ms", 0.25),
        ("9ms", 0.009),
        ("1.5h", 5400.0),
        ("2d", 172_800.0),
        ("20us", 0.00002),
        (" 3 s ", 3.0),
        ("12", 12.0),
        (7, 7.0),
        (0.5, 0.5),
        (0, 0.0),
    ],
)
def test_durations(written: object, seconds: float) -> None:
    assert units.duration(written) == seconds


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("5 minutes", 'the unit "minutes"'),
        ("5M", 'the unit "M"'),
        ("", "empty"),
        ("-5s", "no duration"),
        ("1h30", "a unit is missing"),
        ("30m1h", "large to small"),
        ("1s1s", "large to small"),
        ("soon", "no duration"),
        (-1, "negative"),
        (True, "true or false"),
        (None, "empty"),
        ([], "a list"),
        (float("nan"), "finite"),
        (float("inf"), "finite"),
        (10**400, "too large"),
        ("400d", "more than a year"),
        ("٣s", "no duration"),
    ],
)
def test_no_durations(written: object, said: str) -> None:
    with pytest.raises(UnitError, match=said) as caught:
        units.duration(written)
    assert "write a duration" in caught.value.advice


@pytest.mark.parametrize(
    ("written", "number"),
    [
        ("32MiB", 32 * 2**20),
        ("64k", 64_000),
        ("64kB", 64_000),
        ("64Ki", 65_536),
        ("64KiB", 65_536),
        ("1.5G", 1_500_000_000),
        ("1 GiB", 2**30),
        ("17", 17),
        ("17B", 17),
        (65536, 65_536),
        (1e3, 1000),
    ],
)
def test_sizes(written: object, number: int) -> None:
    assert units.size(written) == number


@pytest.mark.parametrize("written", ["", "MiB", "32MiBs", "32Mbit", "0.3B", 0.5, -1, True, None, float("nan"), "-1k"])
def test_no_sizes(written: object) -> None:
    with pytest.raises(UnitError, match="write a size"):
        units.size(written)


@pytest.mark.parametrize(("written", "number"), [(0, 0.0), (1, 1.0), (0.95, 0.95), ("95%", 0.95), ("100 %", 1.0)])
def test_shares(written: object, number: float) -> None:
    assert units.share(written) == number


def test_a_share_above_one_is_probably_a_percentage() -> None:
    with pytest.raises(UnitError, match=r"is 95, more than the whole; write 95% or 0\.95"):
        units.share(95)


@pytest.mark.parametrize("written", ["0.5", "half", "101%", -0.1, 200, True, float("nan")])
def test_no_shares(written: object) -> None:
    with pytest.raises(UnitError):
        units.share(written)


@pytest.mark.parametrize(
    ("written", "address"),
    [
        ("127.0.0.1:8000", Address("127.0.0.1", 8000)),
        ("GPU-1.lan:80", Address("gpu-1.lan", 80)),
        ("my_service:80", Address("my_service", 80)),
        ("[::1]:8000", Address("::1", 8000)),
        ("[0:0::1]:8000", Address("::1", 8000)),
    ],
)
def test_addresses(written: str, address: Address) -> None:
    assert units.address(written) == address
    assert units.address(str(address)) == address


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("8000", "no port"),
        (8000, "a number"),
        (":8000", "no host"),
        ("*:8000", "no host"),
        ("localhost", "no port"),
        ("[::1]", "no port"),
        ("::1:8000", "host"),
        ("http://a:1", "URL"),
        ("a:70000", "port"),
        ("a:0", "port"),
        ("a:", "port"),
        ("a b:1", "host"),
        ("300.1.1.1:1", "IPv4"),
        ("[::g]:1", "IPv6"),
        ("a..b:1", "host"),
    ],
)
def test_no_addresses(written: object, said: str) -> None:
    with pytest.raises(UnitError, match=said):
        units.address(written)


def test_port_0_is_for_listening_only() -> None:
    assert units.listen_address("127.0.0.1:0") == ("127.0.0.1", 0)


@given(st.floats(0, units.LONGEST))
def test_durations_are_written_so_that_they_mean_the_same(seconds: float) -> None:
    assert units.duration(units.format_duration(seconds)) == seconds


@given(st.integers(0, 2**50))
def test_sizes_are_written_so_that_they_mean_the_same(number: int) -> None:
    assert units.size(units.format_size(number)) == number


def test_durations_are_written_as_people_do() -> None:
    assert [units.format_duration(s) for s in (0, 0.002, 1.5, 90, 3600, 86_401)] == [
        "0s", "2ms", "1.5s", "1m30s", "1h", "1d1s",
    ]  # fmt: skip


@given(st.one_of(st.text(), st.integers(), st.floats(), st.booleans(), st.none(), st.lists(st.text())))
def test_anything_else_is_a_unit_error(value: object) -> None:
    for read in (units.duration, units.size, units.share, units.address):
        try:
            read(value)
        except UnitError as error:
            assert error.problem
            assert error.advice


@pytest.mark.parametrize("value", [-(10**100), "x" * 1000, "a\nb\ud800", {"a": 1}, None, True, 1.5])
def test_values_in_messages_are_short_and_on_one_line(value: object) -> None:
    text = units.show(value)
    assert len(text) < 100
    assert text.isprintable()


def test_a_long_value_is_shown_in_no_time() -> None:
    """From every colon on, a search for an @ that is not there would take minutes."""
    assert units.show("a:" * 1_000_000) == '"' + ("a:" * 30)[:57] + '…"'
