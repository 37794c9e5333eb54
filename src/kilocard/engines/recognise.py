"""Which engine answers at a URL, from what every client can see. A guess, for reports: nothing is decided by it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import NamedTuple

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


class ServerFacts(NamedTuple):
    """What a server says of itself. None: it does not."""

    version: str | None = None
    #: requests that it runs at once: slots, max-num-seqs
    max_running: int | None = None


#: path → keys of the version and of the slots. vLLM and TensorRT-LLM; llama.cpp; SGLang
FACT_PAGES: Mapping[str, tuple[str, str]] = {
    "/version": ("version", "max_num_seqs"),
    "/props": ("build_info", "total_slots"),
    "/get_server_info": ("version", "max_running_requests"),
}


def facts(path: str, body: bytes) -> ServerFacts:
    """What the page at one of FACT_PAGES says; nothing, where it is something else."""
    try:
        said = json.loads(body)
        version, running = (said.get(key) for key in FACT_PAGES[path])
    except (ValueError, AttributeError):
        return ServerFacts()
    return ServerFacts(
        version if isinstance(version, str) and version and "unknown" not in version else None,
        running if type(running) is int and running > 0 else None,
    )
