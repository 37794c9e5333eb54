"""Which engine answers at a URL, from what every client can see. A guess, for reports: nothing is decided by it."""

from __future__ import annotations

from collections.abc import Mapping

#: `owned_by` in the model list → engine
_OWNERS = {
    "vllm": "vllm",
    "sglang": "sglang",
    "tensorrt_llm": "trtllm",
    "llamacpp": "llamacpp",
    "library": "ollama",  # openai/openai.go of Ollama
    "kilocard-emulated": "emulated",
}
#: start of the names on a metrics page → engine; asked after the owner, since emulated engines speak as vLLM does
_METRICS = {b"vllm:": "vllm", b"sglang:": "sglang", b"trtllm_": "trtllm", b"llamacpp:": "llamacpp"}
#: `owned_by` of a kilocard gateway: what stands behind it is not said
GATEWAY = "kilocard"


def recognise(owner: str | None, headers: Mapping[str, str], page: bytes = b"") -> str | None:
    """The engine's name as in the registry, GATEWAY, or None: not known. `headers` have lower-case names."""
    if owner == GATEWAY:
        return GATEWAY
    if "x-kilocard-emulated" in headers:
        return "emulated"
    if owner in _OWNERS:
        return _OWNERS[owner]
    if headers.get("server", "").lower().startswith("llama.cpp"):
        return "llamacpp"
    for prefix, name in _METRICS.items():
        if page.startswith(prefix) or b"\n" + prefix in page:
            return name
    return None
