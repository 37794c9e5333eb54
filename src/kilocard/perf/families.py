"""Families of models whose layers are read as their own code builds them: counts were compared with transformers'.

Any other family is read like the model that most are copies of, a transformer decoder with gated feed-forward
networks, and the answer says so. Where a config is plainly of another kind, the readers refuse it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Set
from typing import Any

#: class names without what they are for; those that transformers does not have were compared with checkpoints
KNOWN = frozenset(
    """
    Afmoe Apertus AquilaChat AquilaModel Arcee Aria AXK1 AyaVision BaiChuan Baichuan Bamba BitNet Bloom ChatGLM
    CodeGen Cohere Cohere2 Cohere2Moe Cohere2Vision Cwm CWM Dbrx DeciLM Deepseek DeepseekOCR DeepseekV2 DeepseekV3
    DeepseekV32 DeepseekV4 DeepseekVLV2 Dots1 Ernie4_5 Ernie4_5_Moe Exaone Exaone4 Exaone4_5_ ExaoneMoE ExaoneMoe
    Falcon FalconH1 FlexOlmo Fuyu Gemma Gemma2 Gemma3 Gemma3n Gemma4 Gemma4Unified Glm Glm4 Glm46V Glm4Moe Glm4MoeLite
    Glm4v Glm4vMoe GlmMoeDsa GlmOcr GPT2 GPTBigCode GPTJ GPTNeoX GptOss Granite GraniteMoe GraniteMoeHybrid
    GraniteMoeShared GraniteMoeSWA GraniteSWA Grok1 Helium HunYuanDenseV1 HunYuanMoEV1 HunYuanVL HyperCLOVAX
    HyperCLOVAXVisionV2 HYV3 InternLM InternLM2 InternLM3 InternVL InternVLChat Jais2 Kimi_K25 KimiK25 KimiK3
    KimiLinear KimiVL Laguna LightOnOcr LLaMA Llama Llama4 Llava LlavaNext LlavaNextVideo LlavaOnevision Mellum MiMo
    MiMoV2Flash MiMoVL MiniCPM MiniCPM3 MiniMax MiniMaxM1 MiniMaxM2 MiniMaxM3 MiniMaxM3Sparse MiniMaxText01
    Ministral Ministral3 Mistral Mistral3 Mistral4 Mixtral MPT Mpt Nemotron NemotronH Olmo OLMo Olmo2 Olmo3 Olmoe
    OlmoHybrid OPT Orion Ovis2 PaliGemma Persimmon Phi Phi3 Phi3V Phi4MM Phimoe PhiMoE Pixtral QianfanOCR QWen Qwen2
    Qwen2_5_OmniThinker Qwen2_5_VL Qwen2_5OmniThinker Qwen2Audio Qwen2Moe Qwen2VL Qwen3 Qwen3_5 Qwen3_5Moe Qwen3Moe
    Qwen3Next Qwen3OmniMoeThinker Qwen3VL Qwen3VLMoe SeedOss SmolLM3 SolarOpen StableLm StableLMEpoch Starcoder2
    Step3p5 Step3p7 Step3p7Flash VaultGemma VideoLlama3 VipLlava Voxtral Yi Youtu
    """.split()  # noqa: SIM905  # 150 names read better as words than as a list
)
_PURPOSE = re.compile(r"(For[A-Z]\w*|Model|LMHeadModel)$")


#: makers do not agree on capitals: LightOnOcr, LightOnOCR
_LOWER = frozenset(stem.lower() for stem in KNOWN)
#: model_type in lower case without underscores → the class that it means
_BY_TYPE = {stem.lower().replace("_", ""): stem for stem in sorted(KNOWN)}


def named(model_type: str) -> str:
    """The family of a config that names no class, by its model_type: "qwen2_moe" → Qwen2MoeForCausalLM. The model_type
    itself when it is not known."""
    key = model_type.lower().removesuffix("_text").replace("_", "").replace("-", "")
    stem = _BY_TYPE.get(key)
    return f"{stem}ForCausalLM" if stem else model_type


def known(family: str) -> bool:
    """Whether this class is one of those; a config that names none is taken at its word."""
    return not family or _PURPOSE.sub("", family).lower() in _LOWER


#: words in a key that say that layers are made of something else than attention and feed-forward networks
_OTHER_LAYERS = re.compile(
    r"mamba|ssm|conv(?!ersation)|linear_(attn|num|key|value)|lightning|recurren|rwkv|retention|kda|gdn|delta|"
    r"loop|interleaved|window_pattern|share_q|compress|latent|layer_group|block_configs|hybrid|memory_(size|slots|layers)"
)


def strange(asked: Set[str], config: Mapping[str, Any]) -> str:
    """A sentence about a class that is not known and whose config has a key about layers that no reader asked for; ""
    when there is none. Such a model must not be taken for a plain transformer."""
    keys = [key for key in config if key not in asked and config[key] and _OTHER_LAYERS.search(key.lower())]
    if not keys:
        return ""
    told = ", ".join(sorted(keys)[:4])
    return f"{told}: layers of a kind that is not modelled here, of a class that is not known; its memory can't be told"


#: model_types of encoders, and of encoders beside decoders; they serve embeddings, scores or transcriptions
_NO_DECODER = frozenset(
    """
    albert bart bert camembert clip convbert deberta deberta_v2 distilbert electra ernie gte longformer m2m_100 marian
    mbart modernbert mpnet mt5 new nomic_bert pegasus roberta roformer siglip speech_to_text switch_transformers t5
    umt5 vit wav2vec2 whisper xlm_roberta xlm_roberta_xl
    """.split()  # noqa: SIM905  # names read better as words than as a list
)


def no_decoder(model_type: str) -> bool:
    return model_type.lower().replace("-", "_") in _NO_DECODER


def doubt(family: str, inner: str = "") -> str:
    """A sentence when the class is not one of those; "" when it is. `inner`: the known class of its language model."""
    if known(family):
        return ""
    if inner:
        return (
            f"{family} is not a class that is known here: its language model is read as {inner}, its towers by the "
            "sizes of their sections; compare the parameters with the model's card"
        )
    return (
        f"{family} is not a class that is known here: its layers are read as a plain transformer's (attention and a "
        "gated feed-forward network); compare the parameters with the model's card before you trust the memory"
    )
