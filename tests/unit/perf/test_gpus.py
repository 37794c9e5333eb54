"""The GPU catalogue: names in any spelling, memory as CUDA reports it."""

from __future__ import annotations

import pytest

from kilocard.core.errors import UsageError
from kilocard.perf.gpus import ALIASES, GPUS, gpu


@pytest.mark.parametrize(
    ("asked", "name"),
    [
        ("H100-80GB", "H100-80GB"), ("h100_sxm", "H100-80GB"), ("A100-80G", "A100-80GB"), ("a100-40gb", "A100-40GB"),
        ("RTX 4090", "RTX4090-24GB"), ("NVIDIA GeForce RTX 3090", "RTX3090-24GB"), ("4090", "RTX4090-24GB"),
        ("RTX4060", "RTX4060"), ("Tesla T4", "T4-16GB"), ("gb300", "GB300"), ("MI300X", "MI300X"), ("L40s", "L40S"),
        ("RTX PRO 6000 96GB", "RTXPRO6000-96GB"), ("RTX A5000-24GB", "A5000-24GB"), ("H200", "H200-141GB"),
        ("B200", "B200"), ("A10-24GB", "A10-24GB"), ("L4", "L4"), ("RTX5090-32GB", "RTX5090-32GB"),
        ("NVIDIA H100 80GB HBM3", "H100-80GB"), ("NVIDIA A100-SXM4-80GB", "A100-80GB"), ("V100-32G", "V100-32GB"),
    ],
)  # fmt: skip
def test_names_in_any_spelling(asked: str, name: str) -> None:
    assert gpu(asked).name == name


def test_an_unknown_name_is_told_near_ones() -> None:
    with pytest.raises(UsageError, match="H100-80GB"):
        gpu("H1000")


def test_memory_is_what_cuda_reports_not_the_label() -> None:
    assert gpu("H100-80GB").memory_gib == pytest.approx(79.19)
    assert all(each.memory_gib < each.catalogue_gib for each in GPUS)


def test_aliases_lead_somewhere() -> None:
    assert all(gpu(alias).name == name for alias, name in ALIASES.items())


def test_arithmetic_falls_back_to_wider_operands() -> None:
    assert gpu("A100").tflops_at(8) == 624
    assert gpu("T4").tflops_at(16) == 65
    assert gpu("H100").tflops_at(4) == 1979


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ("4090", "RTX4090-24GB"), ("4090-48G", "RTX4090-48GB"), ("RTX2080Ti", "RTX2080Ti-11GB"),
        ("2080 Ti 22G", "RTX2080Ti-22GB"), ("GH200-480GB", "GH200-96GB"), ("Quadro RTX 8000", "RTX8000-48GB"),
        ("MI250", "MI250X"), ("A2", "A2-16GB"), ("2x RTX 3090", "RTX3090-24GB"), ("8×H100", "H100-80GB"),
        ("A100-40GB x 4", "A100-40GB"),
    ],
)  # fmt: skip
def test_cards_are_told_apart_by_memory_and_counted_as_one(asked: str, found: str) -> None:
    assert gpu(asked).name == found


@pytest.mark.parametrize("name", ["NVIDIA A100-SXM4-80GB MIG 3g.40gb", "1g.10gb", "H100 MIG 1g.12gb"])
def test_a_slice_of_a_card_is_no_card_like_it(name: str) -> None:
    with pytest.raises(UsageError, match="MIG slice"):
        gpu(name)
