"""Entries that state only part of a shape, as collections of shape facts do: what a built-in shape can add."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

#: fields that say where an entry is from or how weights are stored, not what the model is like
NOT_SHAPE = frozenset({"source", "quantization", "torch_dtype", "tie_word_embeddings", "max_position_embeddings"})
#: two shapes that agree in these, and in whatever else both state, are taken for the same
NEEDED = ("architecture", "hidden_size", "num_attention_heads", "vocab_size")


def completed(entry: Mapping[str, Any], models: Mapping[str, Mapping[str, Any]]) -> Mapping[str, Any]:
    """`entry` with the fields of the built-in shape that it is part of; as it is when there is none.

    Weights are completed too when the built-in shape was read from the same place: it is the same checkpoint then.
    """
    if not all(entry.get(key) for key in NEEDED):
        return entry
    alike = [model for model in models.values() if _agree(entry, model)]
    if not alike:
        return entry
    first = str(entry.get("source") or "")
    # what was read elsewhere too says so behind it
    same = [model for model in alike if first and str(model.get("source") or "").startswith(first)]
    stored = bool(entry.get("quantization"))
    same.sort(key=lambda model: (str(model["source"]) != first, bool(model.get("quantization")) != stored))
    known = (same or alike)[0]
    added = {key: value for key, value in known.items() if entry.get(key) is None and key not in NOT_SHAPE}
    weights = {key: known[key] for key in ("quantization",) if same and key in known}
    return {**entry, **added, **weights}


def _agree(entry: Mapping[str, Any], model: Mapping[str, Any]) -> bool:
    shared = [key for key, value in entry.items() if value is not None and key in model and key not in NOT_SHAPE]
    return all(key in shared for key in NEEDED) and all(entry[key] == model[key] for key in shared)
