"""GPUs that we may use, and that nobody shares one."""

from __future__ import annotations

import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kilocard.backends.gpus import Gpu, GpuLedger, Inventory, discover, parse_list
from kilocard.core.errors import GpuShortage

# the form is nvidia-smi's; MIG instances are listed below their GPU
LISTING = """\
GPU 0: NVIDIA A100-SXM4-80GB (UUID: GPU-aaaa1111-0000-0000-0000-000000000000)
  MIG 3g.40gb     Device  0: (UUID: MIG-7c1d0000-0000-0000-0000-000000000000)
GPU 1: NVIDIA A100-SXM4-80GB (UUID: GPU-bbbb2222-0000-0000-0000-000000000000)
GPU 2: NVIDIA A100-SXM4-80GB (UUID: GPU-bbbb3333-0000-0000-0000-000000000000)
"""


def indices(setting: str | None, listing: str | None = LISTING) -> tuple[int, ...]:
    def run() -> str:
        if listing is None:
            raise FileNotFoundError
        return listing

    env = {} if setting is None else {"CUDA_VISIBLE_DEVICES": setting}
    return tuple(gpu.index for gpu in discover(env, run).gpus)


def test_the_listing() -> None:
    gpus = parse_list(LISTING)
    assert [gpu.index for gpu in gpus] == [0, 1, 2]
    assert gpus[0].name == "NVIDIA A100-SXM4-80GB"
    assert gpus[0].uuid.startswith("GPU-aaaa1111")
    assert parse_list("No devices found.") == ()


@pytest.mark.parametrize(
    ("setting", "listing", "right"),
    [
        (None, LISTING, (0, 1, 2)),
        ("2,0", LISTING, (2, 0)),
        ("", LISTING, ()),
        ("-1", LISTING, ()),
        ("0,7,1", LISTING, (0,)),  # as CUDA does: the list ends at the first entry that names no GPU
        ("0,0,1", LISTING, (0,)),
        ("GPU-aaaa, 1", LISTING, (0, 1)),
        ("GPU-bbbb", LISTING, ()),  # could be two
        ("MIG-7c1d0000", LISTING, ()),
        (None, None, ()),
        ("0,1", None, (0, 1)),  # containers without nvidia-smi
        ("GPU-aaaa", None, ()),
    ],
)
def test_our_own_cuda_visible_devices_is_respected(
    setting: str | None, listing: str | None, right: tuple[int, ...]
) -> None:
    assert indices(setting, listing) == right


def test_a_driver_in_trouble_is_no_gpu() -> None:
    def run() -> str:
        raise subprocess.TimeoutExpired("nvidia-smi", 15)

    assert discover({}, run) == Inventory((), "nvidia-smi finds none")


def ledger(count: int) -> GpuLedger:
    return GpuLedger(Inventory(tuple(Gpu(index) for index in range(count)), "a test"))


def test_groups_are_neighbours_and_narrow_gaps_are_filled_first() -> None:
    gpus = ledger(8)
    assert gpus.take("a-0", "a", 1) == (0,)
    assert gpus.take("b-0", "b", 2) == (1, 2)
    assert gpus.take("a-1", "a", 1) == (3,)
    gpus.give_back("a-0")
    assert gpus.take("c-0", "c", 1) == (0,), "not 4: that gap is wide"
    assert gpus.take("d-0", "d", 4) == (4, 5, 6, 7)
    assert gpus.take("e-0", "e", 0) == ()


def test_the_shortage_names_who_wants_what_who_holds_it_and_what_to_do() -> None:
    gpus = ledger(4)
    gpus.take("small-0", "small", 2)
    with pytest.raises(GpuShortage) as error:
        gpus.take("big-0", "big", 4)
    assert str(error.value) == (
        "pool big: a replica needs 4 GPUs, 2 of 4 free (GPUs 2,3): small-0 holds GPUs 0,1. "
        "Lower replicas.min, stop a replica, or use more machines"
    )
    with pytest.raises(GpuShortage, match=r"Lower gpus.tensor"):
        gpus.take("big-0", "big", 8)
    with pytest.raises(GpuShortage, match=r"this machine has none \(CUDA_VISIBLE_DEVICES is ''\)"):
        GpuLedger(Inventory((), "CUDA_VISIBLE_DEVICES is ''")).take("a-0", "a", 1)


def test_free_but_apart_is_a_shortage_of_its_own() -> None:
    gpus = ledger(3)
    for name in ("a-0", "a-1", "a-2"):
        gpus.take(name, "a", 1)
    gpus.give_back("a-0")
    gpus.give_back("a-2")
    with pytest.raises(GpuShortage, match="not neighbours"):
        gpus.take("b-0", "b", 2)


@settings(max_examples=100)
@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 4)), max_size=30))
def test_no_gpu_is_ever_held_twice(steps: list[tuple[int, int]]) -> None:
    gpus = ledger(8)
    held: dict[str, tuple[int, ...]] = {}
    for number, count in steps:
        name = f"r-{number}"
        if name in held:
            gpus.give_back(name)
            del held[name]
            continue
        try:
            held[name] = gpus.take(name, "r", count)
        except GpuShortage:
            continue
        assert len(held[name]) == count
    all_held = [index for group in held.values() for index in group]
    assert len(all_held) == len(set(all_held))
    assert set(all_held) | set(gpus.free()) == set(range(8))
