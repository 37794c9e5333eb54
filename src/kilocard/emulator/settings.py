"""What an emulated engine is told at its start."""

from __future__ import annotations

from dataclasses import dataclass

from kilocard.core.errors import UsageError
from kilocard.perf.builtin import SMALL_FAST
from kilocard.perf.profile import Profile

DEFAULT_MODEL = "emulated"


@dataclass(frozen=True, slots=True)
class Settings:
    """None takes the profile's own value. Raises UsageError for what makes no sense."""

    models: tuple[str, ...] = (DEFAULT_MODEL,)
    profile: Profile = SMALL_FAST
    max_num_seqs: int | None = None
    kv_tokens: int | None = None
    max_num_batched_tokens: int | None = None
    max_model_len: int | None = None
    #: engine seconds per wall second: 10 makes everything ten times as fast
    speed: float = 1.0
    seed: int = 0
    #: pad /metrics to at least so many bytes: a real vLLM 0.32 page has 51,057
    metrics_bytes: int = 0
    #: seconds an idle connection is kept; uvicorn's default, as in vLLM
    keep_alive: float = 5.0

    def __post_init__(self) -> None:
        if not self.models or not all(self.models):
            raise UsageError("an emulated engine needs a model name")
        if not 0 < self.speed < float("inf"):
            raise UsageError(f"speed is {self.speed}; it must be above 0 (1 is real time, 2 is twice as fast)")
        for name in ("max_num_seqs", "kv_tokens", "max_num_batched_tokens", "max_model_len"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise UsageError(f"{name} is {value}; it must be 1 or more")
        if self.metrics_bytes < 0:
            raise UsageError(f"metrics_bytes is {self.metrics_bytes}; it must be 0 or more")
        if self.kv_tokens is not None and self.kv_tokens < 2 * self.profile.block_size:
            raise UsageError(
                f"kv_tokens is {self.kv_tokens}; profile {self.profile.name} has blocks of {self.profile.block_size} "
                "tokens and needs two at least"
            )

    @property
    def context(self) -> int:
        """Prompt and output tokens of one request. Like vLLM's automatic choice it never exceeds the KV cache."""
        blocks = (self.kv_tokens or self.profile.kv_tokens) // self.profile.block_size
        return min(self.max_model_len or self.profile.max_model_len, (blocks - 1) * self.profile.block_size)
