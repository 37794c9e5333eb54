"""What makers leave in 16 bits though nothing in a name or a flag says so."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from kilocard.perf.layers import Latent
from kilocard.perf.parameters import ATTENTION
from kilocard.perf.quantization import Quantization

if TYPE_CHECKING:
    from kilocard.perf.architecture import Architecture


def usual(wanted: Quantization | None, architecture: Architecture) -> Quantization | None:
    """Of a quantisation that only a name gives: Llama 4's attention, and latent attention in NVFP4, are left alone."""
    if wanted is None:
        return None
    latent = any(isinstance(group.mixer, Latent) for group in architecture.layer_groups)
    if architecture.family.startswith("Llama4") or (wanted.method == "nvfp4" and latent):
        return replace(wanted, kept=wanted.kept | {ATTENTION})
    return wanted
