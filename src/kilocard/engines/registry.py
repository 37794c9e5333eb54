"""All engines, by the name that a pool's `engine` gives."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from kilocard.core.errors import EngineError
from kilocard.engines.base import Engine
from kilocard.engines.emulated import Emulated
from kilocard.engines.external import External
from kilocard.engines.llamacpp import LlamaCpp
from kilocard.engines.ollama import Ollama
from kilocard.engines.sglang import Sglang
from kilocard.engines.transformers import Transformers
from kilocard.engines.trtllm import TensorRtLlm
from kilocard.engines.vllm import Vllm

_ALL: tuple[Engine, ...] = (
    Vllm(), Sglang(), TensorRtLlm(), LlamaCpp(), Ollama(), Transformers(), Emulated(), External(),
)  # fmt: skip

ENGINES: Mapping[str, Engine] = MappingProxyType({engine.name: engine for engine in _ALL})


def engine(name: str) -> Engine:
    """Raises EngineError for a name that is not in the list."""
    found = ENGINES.get(name)
    if found is None:
        raise EngineError(f"there is no engine {name!r}; known: {', '.join(ENGINES)}", param="engine")
    return found
