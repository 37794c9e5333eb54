"""`nvidia-smi topo -m` as machines printed it, and made-up ones."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kilocard.core.errors import SpecError
from kilocard.planner.placement import placement, placements, recommended
from kilocard.planner.topology import LinkKind, Topology, parse_topology

MACHINES = Path(__file__).parents[2] / "fixtures" / "topology"


def machine(name: str) -> Topology:
    return parse_topology((MACHINES / f"topo_{name}.txt").read_text())


@pytest.mark.parametrize("path", sorted(MACHINES.glob("*.txt")), ids=lambda path: path.stem)
def test_every_recorded_machine_can_be_read(path: Path) -> None:
    found = parse_topology(path.read_text())
    assert f"_{found.gpus}x_" in path.name
    assert len(found.links) == found.gpus * (found.gpus - 1) // 2


def test_dp_15_three_gpus_a_pair_and_one_on_the_other_socket() -> None:
    topology = machine("3x_h100nvl_pair_plus_one")
    best = recommended(topology, heads=32)
    assert (best.tensor, best.groups, best.left_over) == (2, ((0, 1),), (2,))
    assert best.links[0] is not None and best.links[0].name == "NV12"
    three = placement(topology, 3, heads=32)
    assert not three.possible and "32 attention heads" in three.refusal
    divides = placement(topology, 3, heads=24)
    assert divides.groups == ((0, 1, 2),) and "SYS" in divides.warnings[0]


def test_nvswitch_machine_takes_any_group() -> None:
    topology = machine("8x_nv18_nonic")
    assert topology.uniform
    assert placement(topology, 4).groups == ((0, 1, 2, 3), (4, 5, 6, 7))
    assert [each.tensor for each in placements(topology, heads=64) if each.possible] == [1, 2, 4, 8]
    assert recommended(topology, heads=64).tensor == 8


def test_pcie_only_machine_keeps_replicas_on_one_gpu_and_says_why() -> None:
    topology = machine("8x_titanv_pcie_dualsocket")
    assert recommended(topology, heads=64).tensor == 1
    pairs = placement(topology, 2)
    assert pairs.groups == ((0, 1), (2, 3), (4, 5), (6, 7))
    assert all(link is not None and link.kind is LinkKind.PIX for link in pairs.links)
    assert "PCIe only" in pairs.warnings[0]
    assert topology.islands(LinkKind.PHB) == [(0, 1, 2, 3), (4, 5, 6, 7)]
    whole = placement(topology, 8)
    assert whole.links[0] is not None and whole.links[0].kind is LinkKind.SYS
    assert "crosses the sockets" in whole.warnings[0]


def test_the_better_pair_comes_first() -> None:
    assert placement(machine("4x_pcie_dualsocket_pxb_pix"), 2).groups == ((2, 3), (0, 1))


def test_network_cards_know_their_gpus() -> None:
    topology = machine("8x_a100_dgx_numa3175_nic_pxb")
    assert len(topology.nics) == 10
    assert topology.nics[0].near() == (0, 1)
    assert topology.nics[9].near() == ()
    assert topology.numa == (3, 3, 1, 1, 7, 7, 5, 5)
    old = machine("4x_old_soc_mlx4")
    assert old.nics[0].name == "mlx4_0" and old.link(0, 2).kind is LinkKind.SYS


def test_cards_without_peer_access_say_so() -> None:
    topology = machine("p2p_rw_2x_rtx5090_gns")
    assert topology.link(0, 1).kind is LinkKind.NO_PEER
    assert "host" in topology.notes[0]


def test_colours_of_a_terminal_are_no_hindrance() -> None:
    text = (MACHINES / "topo_2x_rtx5090_phb.txt").read_text()
    assert parse_topology(text.replace("GPU0\tGPU1", "\x1b[4mGPU0\tGPU1", 1)).link(0, 1).kind is LinkKind.PHB


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("no matrix here", "nvidia-smi topo -m"),
        ("\tGPU0\tGPU1\nGPU0\tX\tNV4\n", "no row for GPU1"),
        ("\tGPU0\tGPU1\nGPU0\tX\n", "line 2.*cut off"),
        ("\tGPU0\tGPU1\nGPU0\tX\tNV4\nGPU1\tSYS\tX\n", "halves of the matrix"),
        ("\tGPU0\tGPU1\nGPU0\tX\tWIFI\nGPU1\tWIFI\tX\n", "'WIFI' is no kind of link"),
    ],
)
def test_bad_text_is_refused_with_the_line(text: str, says: str) -> None:
    with pytest.raises(SpecError, match=says):
        parse_topology(text)


KINDS = ["NV2", "NV4", "NV12", "PIX", "PXB", "PHB", "NODE", "SYS"]


@st.composite
def matrices(draw: st.DrawFn) -> tuple[int, dict[tuple[int, int], str], str]:
    gpus = draw(st.integers(1, 8))
    kinds = {pair: draw(st.sampled_from(KINDS)) for pair in combinations(range(gpus), 2)}
    space = draw(st.sampled_from(["\t", "  ", " \t "]))
    lines = [space + space.join(f"GPU{i}" for i in range(gpus)) + space + "CPU Affinity" + space + "NUMA Affinity"]
    for i in range(gpus):
        row = ["X" if i == j else kinds[min(i, j), max(i, j)] for j in range(gpus)]
        lines.append(space.join([f"GPU{i}", *row, "0-15", str(i % 2)]))
    return gpus, kinds, "\n".join(lines)


@given(matrices())
def test_what_is_written_is_read(drawn: tuple[int, dict[tuple[int, int], str], str]) -> None:
    gpus, kinds, text = drawn
    found = parse_topology(text)
    assert {pair: link.name for pair, link in found.links.items()} == kinds
    assert found.numa == tuple(i % 2 for i in range(gpus))


@given(matrices(), st.integers(1, 8))
def test_groups_share_no_gpu_and_the_first_is_as_well_linked_as_any(
    drawn: tuple[int, dict[tuple[int, int], str], str], tensor: int
) -> None:
    gpus, _, text = drawn
    topology = parse_topology(text)
    found = placement(topology, tensor)
    if tensor > gpus:
        assert found.refusal
        return
    used = [gpu for group in found.groups for gpu in group]
    assert sorted([*used, *found.left_over]) == list(range(gpus))
    if tensor > 1:
        best = min(link.rank for group in combinations(range(gpus), tensor) if (link := topology.weakest(group)))
        assert found.links[0] is not None and found.links[0].rank == best


@given(matrices(), st.sampled_from(list(LinkKind)))
def test_islands_are_complete_and_cover_every_gpu_once(
    drawn: tuple[int, dict[tuple[int, int], str], str], kind: LinkKind
) -> None:
    topology = parse_topology(drawn[2])
    islands = topology.islands(kind)
    assert sorted(gpu for island in islands for gpu in island) == list(range(topology.gpus))
    for island in islands:
        weakest = topology.weakest(island)
        assert weakest is None or weakest.kind <= kind


@given(st.text(max_size=300))
def test_any_text_is_read_or_refused_in_words(text: str) -> None:
    try:
        parse_topology(text)
    except SpecError as error:
        assert error.message.startswith("topology")
