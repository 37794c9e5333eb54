"""What is asked in each request beside its text and length, so that all tools give the server the same work."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

#: Every tool has an option for more fields, and each sends others if it is left alone. None can be made to leave out
#: what it always sends, so the common request says all of it: vllm's neutral penalty, and that GuideLLM's usage comes
#: once and not with each token.
SAME: Mapping[str, Any] = {
    "temperature": 0.0,
    "repetition_penalty": 1.0,
    "stream_options": {"include_usage": True, "continuous_usage_stats": False},
}
#: each as it is without options
OWN: Mapping[str, Any] = {}

#: fields that differ from request to request: the text, and how long its answer is to be
_OF_ONE_REQUEST = {"prompt", "messages", "max_tokens", "max_completion_tokens"}


def fields_of(body: Mapping[str, Any]) -> dict[str, Any]:
    """What a body asks for beside its text and length, by name. A field that is null is one that is not there."""
    kept = {name: value for name, value in body.items() if name not in _OF_ONE_REQUEST and value is not None}
    return dict(sorted(kept.items()))
