"""Built-in models: a name in any spelling → its shape and how its weights are quantised.

The shapes are data (models.json), which the caller reads; this finds the entry. A name that ends in a quantisation
("-FP8-dynamic", "-AWQ", "-quantized.w8a8", "-GPTQ-Int4", "(bnb 4-bit)") and has no entry of its own is its base
model with those weights; "-Instruct", "-Chat" and the like never change a shape.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from kilocard.core.errors import UsageError
from kilocard.perf.architecture import Architecture
from kilocard.perf.quantization import Quantization, quantization
from kilocard.perf.read_config import read_architecture
from kilocard.perf.usual_weights import usual

#: ends of names → the quantisation that they mean; the first that matches counts
SUFFIXES = tuple(
    (re.compile(rf"[-_. ]?(?:{pattern})$"), meaning)
    for pattern, meaning in (
        (r"(?:quantized[-_.])?w8a8(?:[-_.]?(?:int8|dynamic[-_.]per[-_.]token))?", "w8a8"),
        (r"(?:quantized[-_.])?w4a16(?:[-_.]?(?:g128|asym|sym))?", "w4a16"),
        (r"(?:quantized[-_.])?w8a16", "w8a16"),
        (r"fp8[-_.]dynamic(?:[-_.]per[-_.]token)?", "fp8"),
        (r"fp8[-_.]static(?:[-_.]?per[-_.]?tensor)?", "fp8"),
        (r"fp8[-_.]block", "fp8-block"),
        (r"fp8(?:[-_.]?kv)?", "fp8"),
        (r"awq(?:[-_.]?int4|[-_.]?4bit|[-_.]?marlin)?", "awq"),
        (r"gptq(?:[-_.]?marlin)?[-_.]?int8", "gptq-int8"),
        (r"gptq(?:[-_.]?int4|[-_.]?4bit|[-_.]?marlin)?", "gptq"),
        (r"(?:unsloth[-_.])?(?:bnb(?:[-_. ]?4[-_.]?bit)?|bitsandbytes|nf4)", "bitsandbytes"),
        (r"(?:bnb[-_. ]?)?8[-_.]?bit", "bnb-8bit"),
        (r"(?:nv)?fp4(?:a16)?", "nvfp4"),
        (r"mxfp4", "mxfp4"),
        (r"(?:auto[-_.]?round[-_.]?)?int4|4[-_.]?bit", "int4"),
        (r"int8", "int8"),
        (r"(?:gguf[-_:.]?)?(q[2-8]_(?:0|1|k)(?:_[sml])?|iq[2-4]_[a-z]+)", "gguf"),
        (r"gguf", "q4_k_m"),
        (r"bf16|fp16", "none"),
    )
)
#: makers whose own "-FP8" checkpoints have a scale for every block of 128 × 128
BLOCK_MAKERS = ("qwen/", "deepseek-ai/", "zai-org/", "minimaxai/", "moonshotai/", "xiaomimimo/")
#: who makes NVFP4 checkpoints that leave the KV cache alone; NVIDIA's own tool writes an 8-bit one into most of its own
OTHER_QUANTIZERS = ("redhatai/", "neuralmagic/", "unsloth/", "nm-testing/")
#: words that say what a model was trained for, dates and the like
NEUTRAL = re.compile(
    r"[-_ ](instruct|chat|it|hf|base|thinking|pt|sft|rl|class|preview|distilled|v0\.[1-3]|v1\.5|\d{4}|\+.*draft)$"
)


@dataclass(frozen=True, slots=True)
class Found:
    """A built-in model: the entry's own name, its shape with the weights that were asked for, and where it was read."""

    entry: str
    architecture: Architecture
    source: str


def find(name: str, models: Mapping[str, Mapping[str, Any]]) -> Found:
    """`models`: the part of that name of models.json. Raises UsageError that names near ones."""
    by_exact = {key.lower(): key for key in models}
    by_bare: dict[str, str] = {}
    by_stem: dict[str, str] = {}
    for key in models:
        by_bare.setdefault(_bare(key), key)
        by_stem.setdefault(_stem(_bare(key)), key)
    asked = name.strip().lower()
    bare = _bare(asked)
    entry = by_exact.get(asked) or by_bare.get(bare)
    if entry:
        return _found(entry, models[entry], name, None, own=True)
    base, meaning = _without_quantization(bare)
    if meaning == "fp8" and asked.startswith(BLOCK_MAKERS):
        meaning = "fp8-block"
    # the base model first: an entry with another quantisation has the same shape, but its own weights
    entry = by_bare.get(base) or by_stem.get(_stem(base))
    if entry is None and meaning is None:
        entry = by_stem.get(_stem(bare))
    if entry is None:
        same = [key for key in models if _stem(_without_quantization(_bare(key))[0]) == _stem(base)]
        entry = same[0] if same else None
        if entry is not None and meaning is None:
            meaning = "none"
    if entry is None:
        raise UsageError(_unknown(name, base, models))
    return _found(entry, models[entry], name, meaning, own=False)


def _found(entry: str, config: Mapping[str, Any], name: str, meaning: str | None, *, own: bool) -> Found:
    architecture = read_architecture(config, name=entry if own else name)
    if meaning == "nvfp4":
        kind = _weights(meaning, architecture)
        cache = 0 if name.lower().startswith(OTHER_QUANTIZERS) else 8
        architecture = replace(architecture, quantization=replace(kind, kv_bits=cache) if kind else None)
    elif meaning is not None:
        architecture = replace(architecture, quantization=_weights(meaning, architecture))
    return Found(entry, architecture, str(config.get("source", "")))


def _weights(meaning: str, architecture: Architecture) -> Quantization | None:
    """FP8 of a model that comes in FP8 is its maker's own kind (blocks)."""
    wanted = quantization(meaning)
    own = architecture.quantization
    if own is not None and wanted is not None and own.method == wanted.method:
        return own
    return usual(wanted, architecture)


def _bare(name: str) -> str:
    """Lower case, no organisation, no file name of a cache; "(bnb 4-bit)" becomes an ending like any other."""
    bare = name.strip().lower().rstrip("/").rsplit("/", 1)[-1]
    bare = re.sub(r"\s*\(([^)]*)\)", r"-\1", bare).strip()
    return bare.replace(" ", "-").removeprefix("meta-")


def _without_quantization(bare: str) -> tuple[str, str | None]:
    meaning: str | None = None
    for _ in range(3):  # "-fp8-dynamic-gguf" has more than one
        for pattern, means in SUFFIXES:
            found = pattern.search(bare)
            if found and found.start() > 0:
                if meaning is None:
                    meaning = found[1] if means == "gguf" else means
                bare = bare[: found.start()]
                break
        else:
            return bare, meaning
    return bare, meaning


def _stem(bare: str) -> str:
    while True:
        shorter = NEUTRAL.sub("", bare)
        if shorter == bare:
            return bare
        bare = shorter


def _unknown(name: str, base: str, models: Mapping[str, Any]) -> str:
    names = {_bare(key): key for key in models}
    near = [names[each] for each in difflib.get_close_matches(base, names, n=4, cutoff=0.5)]
    hint = f"near it are {', '.join(near)}" if near else f"{len(models)} models are built in"
    return (
        f"model {name!r} is neither a file, a folder nor built in; {hint}. Any other model: give the path of its "
        "config.json, or of the folder that has it."
    )
