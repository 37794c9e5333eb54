"""What GPUs pay to talk: R31, R32, R33, R35."""

from __future__ import annotations

import pytest

from kilocard.core.errors import UsageError
from kilocard.perf.gpus import gpu
from kilocard.perf.link import ETHERNET, LINKS, NVLINK, PCIE, RDMA, Link, bubble, inside, link


def test_the_bubble_of_a_pipeline() -> None:
    """R32: (stages − 1)/(micro-batches + stages − 1)."""
    assert bubble(4, 4) == pytest.approx(3 / 7)
    assert bubble(4, 32) == pytest.approx(3 / 35)
    assert bubble(1, 1) == 0
    with pytest.raises(ValueError, match="at least one"):
        bubble(0, 4)


def test_an_all_reduce_is_rounds_and_bytes() -> None:
    plain = Link("plain", 100, 1.0, 1e-6)
    assert plain.all_reduce_s(0, 8) == pytest.approx(3e-6)
    assert plain.all_reduce_s(100e9, 2) == pytest.approx(1 + 1e-6)  # 2 × 1/2 of the bytes
    assert plain.all_reduce_s(100e9, 4) == pytest.approx(1.5 + 2e-6)
    assert plain.all_reduce_s(1, 1) == 0
    assert plain.all_to_all_s(100e9, 4) == pytest.approx(0.75 + 2e-6)
    assert plain.all_to_all_s(1, 1) == 0
    assert plain.send_s(100e9) == pytest.approx(1 + 1e-6)


def test_nearer_is_faster() -> None:
    """One layer of a 70B model, a prompt of 2,048 tokens: 32 MB in an AllReduce among 8."""
    times = [each.all_reduce_s(2048 * 8192 * 2, 8) for each in (NVLINK, PCIE, RDMA, ETHERNET)]
    assert times == sorted(times)
    assert times[-1] > 20 * times[0]


def test_a_card_knows_its_link() -> None:
    assert inside(gpu("H100")).bandwidth_gb_s == 450
    assert inside(gpu("L40S")).name == "pcie"
    assert inside(gpu("RTX 4090")).bandwidth_gb_s == gpu("RTX 4090").pcie_gb_s


def test_links_by_name_and_label() -> None:
    assert link("ethernet", gbit_s=1).bandwidth_gb_s == 0.125
    assert link("nvlink") is LINKS["nvlink"]
    assert all(each.source for each in LINKS.values())
    with pytest.raises(UsageError, match="there are nvlink, pcie"):
        link("wet string")
