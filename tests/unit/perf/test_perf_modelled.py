"""Profiles of what was never measured: what they are made of, and what they must say of themselves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from tests.ground_truth.speed_points import architecture

from kilocard.perf.gpus import gpu
from kilocard.perf.layout import Layout
from kilocard.perf.link import ETHERNET, NVLINK, PCIE, link
from kilocard.perf.modelled import modelled_profile
from kilocard.perf.operating_point import capacity, operating_point
from kilocard.perf.prior_numbers import PRIORS
from kilocard.perf.profile import Profile


@dataclass(frozen=True)
class Room:
    kv_tokens: int = 400_000
    max_num_seqs: int = 256
    max_num_batched_tokens: int = 8192
    max_model_len: int = 8192
    block_size: int = 16


def modelled(model: str, card: str, layout: Layout | None = None, **changes: Any) -> Profile:
    room = Room(**{key: changes.pop(key) for key in list(changes) if key in Room.__dataclass_fields__})
    return modelled_profile(architecture(model), gpu(card), layout or Layout(), room, room, **changes)


LLAMA, SMALL, MIXTURE = (
    "meta-llama/Llama-3.1-70B-Instruct",
    "meta-llama/Llama-3.1-8B-Instruct",
    "deepseek-ai/DeepSeek-R1",
)


def test_a_profile_says_what_it_stands_on() -> None:
    profile = modelled(SMALL, "H100", engine_version="0.19.0")
    assert (profile.provenance, profile.engine, profile.engine_version, profile.gpu) == (
        "modelled", "vllm", "0.19.0", "H100-80GB",
    )  # fmt: skip
    evidence = PRIORS["vllm"].evidence["hopper", "dense"]
    assert profile.error == evidence.median
    assert f"{evidence.rows} rows" in profile.note
    assert Profile.from_mapping(profile.to_mapping()) == profile


def test_what_was_never_measured_has_a_wider_error_and_says_so() -> None:
    strange_card = modelled(SMALL, "L40S")
    assert strange_card.error == 0.3 and "too few curves of dense models on ada GPUs are known" in strange_card.note
    strange_engine = modelled(SMALL, "H100", engine="llamacpp")
    assert strange_engine.error == 0.4 and "No curve of llamacpp is known" in strange_engine.note


@pytest.mark.parametrize("engine", list(PRIORS))
@pytest.mark.parametrize("card", ["A100", "H100", "H200", "B200", "L4", "RTX 4090", "T4-16GB", "MI300X"])
def test_every_card_gets_a_profile(engine: str, card: str) -> None:
    profile = modelled(SMALL, card, engine=engine)
    alone = operating_point(profile, 1, 500, 200)
    # one stream can't be faster than its weights are read, nor much slower
    floor = profile.weights_s
    assert floor < alone.tpot_s < 2.5 * floor + 0.01


def test_a_faster_card_is_faster() -> None:
    tokens = [capacity(modelled(SMALL, card), 1000, 200).output_tokens_per_s for card in ("L4", "A100", "H100", "B200")]
    assert tokens == sorted(tokens)


def test_nvlink_and_pcie_give_different_answers() -> None:
    """R31, R33: two AllReduces a layer; over PCIe four GPUs of one 70B replica lose much of what they add."""
    near, slots = (modelled(LLAMA, "A100", Layout(4), link=each) for each in (NVLINK, PCIE))
    fast, slow = (capacity(each, 500, 300).output_tokens_per_s for each in (near, slots))
    assert slow < 0.8 * fast
    piped = modelled(LLAMA, "A100", Layout(2, pipeline=2), link=PCIE, between=PCIE)
    assert capacity(piped, 500, 300).output_tokens_per_s > slow  # pipeline over PCIe instead


def test_tensor_parallelism_across_slow_machines_is_worse_than_inside_one() -> None:
    """R35: over 25 Gbit/s Ethernet, TP8 on two machines is slower than TP4 in one."""
    inside_one = modelled(LLAMA, "A100", Layout(4))
    across = modelled(LLAMA, "A100", Layout(8), link=ETHERNET)
    assert operating_point(across, 16, 500, 300).output_tokens_per_s < operating_point(
        inside_one, 16, 500, 300
    ).output_tokens_per_s  # fmt: skip
    slower = modelled(LLAMA, "A100", Layout(8), link=link("ethernet", gbit_s=1))
    assert slower.prefill_token_s > 2 * across.prefill_token_s


def test_pipelines_share_out_the_work_but_read_all_weights() -> None:
    """R32: stages work at once on different batches; a token passes all of them, and prompts leave a bubble."""
    one, two = modelled(LLAMA, "H200", Layout(2)), modelled(LLAMA, "H200", Layout(2, pipeline=2))
    assert two.weights_s == pytest.approx(one.weights_s)
    assert two.kv_token_s == pytest.approx(one.kv_token_s / 2)
    # two stages with two batches in flight: a third of the time idle
    assert two.prefill_token_s == pytest.approx(one.prefill_token_s / 2 / (1 - 1 / 3), rel=0.05)
    assert operating_point(two, 1, 100, 100).tpot_s >= operating_point(one, 1, 100, 100).tpot_s
    assert capacity(two, 1000, 300).output_tokens_per_s > capacity(one, 1000, 300).output_tokens_per_s


def test_scaling_by_tensor_parallelism_is_not_free() -> None:
    """R6: eight GPUs of one 8B replica give less than eight replicas of one."""
    one, eight = modelled(SMALL, "H100"), modelled(SMALL, "H100", Layout(8))
    gain = (
        operating_point(eight, 64, 500, 300).output_tokens_per_s
        / operating_point(one, 64, 500, 300).output_tokens_per_s
    )
    assert 1.2 < gain < 4


def test_experts_over_machines_send_tokens_around() -> None:
    near = modelled(MIXTURE, "H200", Layout(tensor=1, data=8, expert=8))
    far = modelled(MIXTURE, "H200", Layout(tensor=1, data=16, expert=16))
    assert near.sequence_s > 0 and far.prefill_token_s > 0
    assert far.experts_s == pytest.approx(near.experts_s / 2)
    assert far.step_fixed_s > near.step_fixed_s


def test_a_mixtures_small_batches_are_fast() -> None:
    profile = modelled(MIXTURE, "H200", Layout(8))
    few, many = (operating_point(profile, streams, 500, 300).tpot_s for streams in (1, 64))
    assert many > 2 * few
