"""How one replica is spread over GPUs."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Layout:
    """Degrees of parallelism, as the engine's flags say them; each 1 or more.

    With `expert` the experts are shared out whole over tensor × data GPUs (vLLM's --enable-expert-parallel), not cut.
    `data` ranks each hold the attention layers, and a KV cache, of their own.
    """

    tensor: int = 1
    pipeline: int = 1
    #: GPUs that share the experts out; 1 = off
    expert: int = 1
    data: int = 1

    @property
    def gpus(self) -> int:
        return self.tensor * self.pipeline * self.data

    def __str__(self) -> str:
        parts = [f"TP{self.tensor}"]
        parts += [f"{name}{n}" for name, n in (("PP", self.pipeline), ("DP", self.data), ("EP", self.expert)) if n > 1]
        return " × ".join(parts)
