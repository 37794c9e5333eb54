"""Old names for the same thing, and models that are none to plan."""

from __future__ import annotations

from typing import Any

import pytest

from kilocard.core.errors import SpecError
from kilocard.perf.read_config import read_architecture

MPT: dict[str, Any] = {
    "architectures": ["MPTForCausalLM"], "model_type": "mpt", "d_model": 4096, "n_layers": 32, "n_heads": 32,
    "expansion_ratio": 4, "max_seq_len": 2048, "vocab_size": 50432,
}  # fmt: skip
BLOOM: dict[str, Any] = {
    "architectures": ["BloomForCausalLM"], "model_type": "bloom", "n_embed": 14336, "n_layer": 70,
    "num_attention_heads": 112, "vocab_size": 250880,
}  # fmt: skip


@pytest.mark.parametrize(("config", "billions"), [(MPT, 6.65), (BLOOM, 176.2)])
def test_the_published_checkpoints_of_old_families(config: dict[str, Any], billions: float) -> None:
    assert read_architecture(config).parameters / 1e9 == pytest.approx(billions, rel=0.002)


def test_an_expansion_ratio_is_taken_at_its_word() -> None:
    wide = read_architecture(MPT | {"expansion_ratio": 6})
    assert wide.intermediate == 6 * 4096 and not wide.assumptions


@pytest.mark.parametrize(
    "config",
    [
        {"architectures": ["BertModel"], "model_type": "bert", "hidden_size": 768, "intermediate_size": 3072,
         "num_hidden_layers": 12, "num_attention_heads": 12, "vocab_size": 30522},
        {"architectures": ["XLMRobertaModel"], "model_type": "xlm-roberta", "vocab_size": 250002},
        {"architectures": ["T5ForConditionalGeneration"], "model_type": "t5", "d_model": 512},
        {"architectures": ["SomethingNew"], "model_type": "new_seq2seq", "is_encoder_decoder": True},
    ],
)  # fmt: skip
def test_an_encoder_is_refused_as_one(config: dict[str, Any]) -> None:
    with pytest.raises(SpecError, match="encoder"):
        read_architecture(config, name="it")
