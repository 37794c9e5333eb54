"""Fields of a config.json: other names for the same thing, what a class leaves out, and problems collected."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kilocard.core.errors import SpecError
from kilocard.perf.nested_defaults import NESTED_DEFAULTS

#: What transformers fills in when the file is silent (configuration classes of transformers 5); only where real
#: checkpoints rely on it.
CLASS_DEFAULTS: dict[str, dict[str, Any]] = {
    "gemma": {"head_dim": 256, "vocab_size": 256000},
    "gemma2": {"head_dim": 256, "sliding_window": 4096, "sliding_window_pattern": 2, "num_key_value_heads": 4},
    "gemma3_text": {
        "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256, "vocab_size": 262208,
        "sliding_window": 4096, "sliding_window_pattern": 6, "max_position_embeddings": 131072,
        "rope_local_base_freq": 10000,
    },
    "gemma3": {"rope_scaling": {"rope_type": "linear", "factor": 8.0}},
    "cohere2": {"sliding_window_pattern": 4, "sliding_window": 4096},
    "llama4_text": {"attention_chunk_size": 8192, "intermediate_size_mlp": 16384, "interleave_moe_layer_step": 1},
    "gemma4_text": {
        "head_dim": 256, "global_head_dim": 512, "sliding_window": 512, "sliding_window_pattern": 6,
        "max_position_embeddings": 131072,
    },
    "gpt2": {"vocab_size": 50257},
    "qwen3_next": {"partial_rotary_factor": 0.25},
    "qwen3_5_text": {"partial_rotary_factor": 0.25},
    "qwen3_5_moe_text": {"partial_rotary_factor": 0.25},
    "mistral": {"max_position_embeddings": 131072},
    "llama": {"max_position_embeddings": 2048},
}  # fmt: skip
#: the same by the name of the class, for flat entries, which have no model_type
FAMILY_DEFAULTS = {
    "Gemma2ForCausalLM": "gemma2", "Gemma3ForCausalLM": "gemma3_text", "Gemma3ForConditionalGeneration": "gemma3",
    "GemmaForCausalLM": "gemma", "Cohere2ForCausalLM": "cohere2", "Llama4ForConditionalGeneration": "llama4_text",
    "Llama4ForCausalLM": "llama4_text", "Qwen3NextForCausalLM": "qwen3_next",
    "Qwen3_5ForConditionalGeneration": "qwen3_5_text", "Qwen3_5MoeForConditionalGeneration": "qwen3_5_moe_text",
}  # fmt: skip


def class_defaults(model_type: str, family: str, *, nested: bool = False) -> Mapping[str, Any]:
    """`nested`: of a language model inside a multi-modal one, whose config may be silent about sizes too."""
    if nested and model_type in NESTED_DEFAULTS:
        return CLASS_DEFAULTS.get(model_type, {}) | NESTED_DEFAULTS[model_type]
    known = CLASS_DEFAULTS.get(model_type) or CLASS_DEFAULTS.get(FAMILY_DEFAULTS.get(family, ""), {})
    # the sizes of Gemma 3 that see images have the text model's defaults and a stretched rotation
    return CLASS_DEFAULTS["gemma3_text"] | known if known is CLASS_DEFAULTS["gemma3"] else known


#: a number above it is no size of a model
MOST = 2**40
#: more layers than any model has
MOST_LAYERS = 4096


def whole(name: str, value: Any) -> int:
    """`value` as a whole number, 0 or more. Raises SpecError that names the key."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not 0 <= value <= MOST or value != int(value):  # not a number fails the comparison
        raise SpecError(f"{name}: {value!r} is not a whole number, 0 or more")
    return int(value)


def counts(name: str, found: Mapping[str, Any]) -> dict[str, int]:
    """Kinds of layers and how many there are of each. Raises SpecError for what can't be one."""
    known = {str(kind): whole(f"{name}.{kind}", count) for kind, count in found.items()}
    if not 0 < sum(known.values()) <= MOST_LAYERS:
        raise SpecError(f"{name}: {sum(known.values()):,} layers are not those of a model")
    return known


class Fields:
    """Reads a config and collects what is wrong in `problems`, so that all of it is reported at once."""

    def __init__(self, config: Mapping[str, Any], defaults: Mapping[str, Any], family: str) -> None:
        self.config, self.defaults, self.family = config, defaults, family
        self.problems: list[str] = []
        self.assumptions: list[str] = []
        #: keys that a reader asked for
        self.asked: set[str] = set()

    def raw(self, *names: str) -> Any:
        self.asked.update(names)
        for source in (self.config, self.defaults):
            for name in names:
                if source.get(name) is not None:
                    return source[name]
        return None

    def optional(self, *names: str) -> int | None:
        """A whole number, 0 or more, or None when there is none."""
        value = self.raw(*names)
        if value is None:
            return None
        try:
            return whole(names[0], value)
        except SpecError as error:
            self.problems.append(str(error))
            return None

    def layers(self, *names: str) -> int:
        """A number of layers."""
        value = self.size(*names)
        if value <= MOST_LAYERS:
            return value
        self.problems.append(f"{names[0]}: {value:,} layers are not those of a model")
        return 1

    def size(self, *names: str) -> int:
        """A whole number, 1 or more; a problem (and 1) when it is missing."""
        before = len(self.problems)
        value = self.optional(*names)
        if not value and len(self.problems) == before:
            also = f" (nor {', '.join(names[1:])})" if names[1:] else ""
            self.problems.append(f"{names[0]}{also} is missing or 0; a config.json of a language model states it")
        return value or 1

    def flag(self, name: str, default: bool = False) -> bool:
        value = self.raw(name)
        return bool(value) if isinstance(value, bool | int) else default

    def sequence(self, *names: str) -> Sequence[Any] | None:
        value = self.raw(*names)
        return value if isinstance(value, list) and value else None

    def mapping(self, name: str) -> Mapping[str, Any] | None:
        value = self.raw(name)
        return value if isinstance(value, Mapping) and value else None

    def assume(self, sentence: str) -> None:
        self.assumptions.append(sentence)

    def is_family(self, *starts: str) -> bool:
        return self.family.startswith(starts)
