"""config.json → Architecture: Hugging Face's files, text model nested or not, and the flat entries of models.json."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kilocard.core.errors import SpecError
from kilocard.perf.architecture import Architecture
from kilocard.perf.config_fields import Fields, class_defaults
from kilocard.perf.families import doubt, known, named, no_decoder, strange
from kilocard.perf.layers import Block
from kilocard.perf.read_ffn import read_ffns
from kilocard.perf.read_mixers import read_mixers
from kilocard.perf.read_quantization import read_quantization
from kilocard.perf.rotary import rotary_elements
from kilocard.perf.tower import largest_image, tower_parameters

#: where a multi-modal config keeps its language model
NESTED = ("text_config", "llm_config", "language_config", "thinker_config")
#: whose classes tie input and output embedding when the config does not say
TIED_BY_DEFAULT = (
    "Gemma", "Cohere", "OPT", "GPT2", "GPTBigCode", "Bloom", "FalconFor", "Starcoder2", "SmolLM3", "Lfm2", "Ernie4_5",
    "MiniCPM3", "MPT", "Mpt", "VaultGemma", "PaliGemma", "GraniteSWA", "GraniteSpeech", "Qwen3ASR", "PaddleOCRVL",
    "MambaFor", "Mamba2",
)  # fmt: skip
DTYPES = {"bfloat16": "bfloat16", "float16": "float16", "float32": "float32", "half": "float16", "float": "float32"}


def read_architecture(config: Mapping[str, Any], *, name: str = "") -> Architecture:
    """Raises SpecError that lists every problem, one a line."""
    text = _text_config(config)
    family = _family(config, text)
    model_type = str(text.get("model_type") or config.get("model_type") or "")
    if no_decoder(model_type) or config.get("is_encoder_decoder") is True:
        raise SpecError(
            f"{name or model_type}: {family or model_type} is an encoder, or has one beside its decoder: it has no KV "
            "cache that grows with an answer, and is not modelled. Only decoders that write text can be planned"
        )
    inner = "" if known(family) or text is config else named(model_type)
    inner = inner if known(inner) else ""
    fields = Fields(text, class_defaults(model_type, inner or family, nested=text is not config), inner or family)
    hidden = fields.size("hidden_size", "n_embd", "n_embed", "d_model", "dim")
    vocab = fields.size("vocab_size", "padded_vocab_size")
    mixers = read_mixers(fields, hidden)
    ffns = read_ffns(fields, hidden, len(mixers))
    try:
        quantization = read_quantization(text) or read_quantization(config)
    except SpecError as error:
        fields.problems.append(str(error))
        quantization = None
    image_tokens, image_token_bytes = largest_image(config, family)
    doubted = doubt(family, inner)
    if doubted:
        fields.assume(doubted)
        other = "" if inner else strange(fields.asked, text)
        if other:
            fields.problems.append(f"{family}: {other}")
    if fields.problems:
        where = f"{name}: " if name else ""
        raise SpecError("\n".join(where + problem for problem in dict.fromkeys(fields.problems)))
    return Architecture(
        name=name or str(config.get("_name_or_path") or family),
        family=family,
        hidden=hidden,
        vocab=vocab,
        blocks=tuple(Block(mixer, ffn) for mixer, ffn in zip(mixers, ffns, strict=True)),
        tied=_tied(config, text, family),
        dtype=_dtype(config, text),
        quantization=quantization,
        max_length=fields.optional("max_position_embeddings", "n_positions", "seq_length", "max_seq_len"),
        per_layer_width=fields.optional("hidden_size_per_layer_input") or 0,
        rotary_elements=rotary_elements(fields, hidden),
        tower_parameters=tower_parameters(config, hidden, family),
        position_elements=_learned_positions(fields, hidden),
        image_tokens=image_tokens,
        image_token_bytes=image_token_bytes,
        step_tokens=_step_tokens(fields, family),
        draft_layers=fields.optional("num_nextn_predict_layers", "mtp_num_hidden_layers") or 0,
        assumptions=tuple(dict.fromkeys(fields.assumptions)),
    )


def _text_config(config: Mapping[str, Any]) -> Mapping[str, Any]:
    for key in NESTED:
        inner = config.get(key)
        if isinstance(inner, Mapping) and inner:
            return _text_config(inner)
    return config


def _family(config: Mapping[str, Any], text: Mapping[str, Any]) -> str:
    for source in (config, text):
        listed = source.get("architectures")
        if isinstance(listed, list) and listed:
            return str(listed[0])
    return str(config.get("architecture") or "") or named(str(text.get("model_type") or config.get("model_type") or ""))


def _tied(config: Mapping[str, Any], text: Mapping[str, Any], family: str) -> bool:
    for source in (config, text):  # both may say it; the head belongs to the whole model, as vLLM reads it too
        stated = source.get("tie_word_embeddings")
        if isinstance(stated, bool):
            return stated
    return family.startswith(TIED_BY_DEFAULT)


def _learned_positions(fields: Fields, hidden: int) -> int:
    if not fields.is_family("GPT2", "GPTBigCode", "OPT"):
        return 0
    return ((fields.optional("max_position_embeddings", "n_positions") or 0) + 2 * fields.is_family("OPT")) * hidden


def _step_tokens(fields: Fields, family: str) -> int:
    """Gemma 4 but for its small sizes attends both ways within an image or a video: 32 frames of 70 tokens and 8 around
    each (vLLM's gemma4_mm)."""
    if not family.startswith("Gemma4ForConditional") or fields.optional("hidden_size_per_layer_input"):
        return 0
    return 32 * 78


def _dtype(config: Mapping[str, Any], text: Mapping[str, Any]) -> str:
    """What vLLM makes of `--dtype auto`: 32-bit checkpoints are run in 16."""
    stated = text.get("torch_dtype") or text.get("dtype") or config.get("torch_dtype") or config.get("dtype")
    dtype = DTYPES.get(str(stated).removeprefix("torch."), "bfloat16")
    return "bfloat16" if dtype == "float32" else dtype
