"""The shape of a language model: a list of blocks, each a mixer over the sequence and a feed-forward network.

Counts are of the whole model, unsharded. Memory, speed and the planner read everything they know of a model here;
`read_config.read_architecture` makes one from a config.json.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from kilocard.perf import parameters
from kilocard.perf.layers import Attention, Block, Compressed, Dense, Experts, Latent, Linear, Mamba, Mixer

if TYPE_CHECKING:
    from kilocard.perf.quantization import Quantization


@dataclass(frozen=True, slots=True)
class LayerGroup:
    """Layers whose mixers are the same."""

    #: full, window, chunked, mla, compressed, linear or mamba
    kind: str
    layers: int
    mixer: Mixer


@dataclass(frozen=True)
class Architecture:
    """A model. Sizes in elements, lengths in tokens."""

    name: str
    #: the class in config.json: "LlamaForCausalLM"
    family: str
    hidden: int
    vocab: int
    blocks: tuple[Block, ...]
    tied: bool
    #: bfloat16, float16 or float32: of what is not quantised
    dtype: str
    quantization: Quantization | None
    #: longest context that the model was made for, None when the config does not say
    max_length: int | None
    #: width of the embeddings that every layer has of its own (Gemma 3n, Gemma 4 E4B), 0 without
    per_layer_width: int = 0
    #: elements of the tables of sines and cosines that every GPU holds (Llama 4 Scout: 2.5 GiB of them)
    rotary_elements: int = 0
    #: elements of a learned embedding of positions (GPT-2, OPT), 0 without
    position_elements: int = 0
    #: parameters of the vision or audio tower and its projector, 0 for a text model
    tower_parameters: int = 0
    #: bytes of all weights as the checkpoint stores them, 0 = not known
    stored_bytes: int = 0
    #: the largest image in tokens, and bytes that its encoding holds at the peak for each token; 0 = not known
    image_tokens: int = 0
    image_token_bytes: int = 0
    #: tokens of the longest image or video where it must fit into one step (Gemma 4 looks both ways in it); 0 = no such
    step_tokens: int = 0
    #: layers for multi-token prediction: in the checkpoint, loaded for speculative decoding only
    draft_layers: int = 0
    #: what read_architecture had to assume, one sentence each
    assumptions: tuple[str, ...] = ()

    @property
    def layers(self) -> int:
        return len(self.blocks)

    @cached_property
    def layer_groups(self) -> tuple[LayerGroup, ...]:
        """Mixers and how many layers have each, in the order in which they first appear."""
        counted = Counter(block.mixer for block in self.blocks if block.mixer is not None)
        return tuple(LayerGroup(mixer.kind, layers, mixer) for mixer, layers in counted.items())

    @cached_property
    def _attention(self) -> Attention | Latent | Compressed | None:
        softmax = [g.mixer for g in self.layer_groups if isinstance(g.mixer, Attention | Latent | Compressed)]
        return next((m for m in softmax if m.kind in {"full", "mla"}), softmax[0] if softmax else None)

    @property
    def heads(self) -> int:
        """Query heads of the full-attention layers; 0 for a model that has no attention."""
        return self._attention.heads if self._attention else 0

    @property
    def kv_heads(self) -> int:
        """KV heads of the full-attention layers; 1 for MLA, whose heads share one latent vector."""
        return self._attention.kv_heads if isinstance(self._attention, Attention) else min(self.heads, 1)

    @property
    def head_dim(self) -> int:
        match self._attention:
            case Latent(nope_dim=nope, rope_dim=rope):
                return nope + rope
            case None:
                return 0
            case attention:
                return attention.head_dim

    @property
    def experts(self) -> Experts | None:
        """The mixture of experts, None in a dense model."""
        return next((block.ffn for block in self.blocks if isinstance(block.ffn, Experts)), None)

    @property
    def intermediate(self) -> int:
        """Width of the widest dense feed-forward network; 0 when every layer has experts."""
        return max((block.ffn.intermediate for block in self.blocks if isinstance(block.ffn, Dense)), default=0)

    @property
    def vision(self) -> bool:
        return self.tower_parameters > 0

    @property
    def recurrent(self) -> bool:
        """Some layers keep a state of fixed size: linear attention, Mamba."""
        return any(isinstance(group.mixer, Linear | Mamba) for group in self.layer_groups)

    @property
    def hybrid(self) -> bool:
        """Layers of more than one kind, or whose cache does not grow with the context: no single rate a token."""
        return {group.kind for group in self.layer_groups} - {"full", "mla"} != set()

    @cached_property
    def parameters(self) -> int:
        """Of the whole model, tower included, draft layers not."""
        return parameters.total(self)

    @cached_property
    def active_parameters(self) -> int:
        """Parameters that a text token passes through, the output head included, the input embedding not."""
        return parameters.active(self)
