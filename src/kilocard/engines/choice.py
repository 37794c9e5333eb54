"""Which engine for what: the table that `kilocard engines` prints, with the reasons."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Choice:
    """What speaks for an engine. `name` is the one that a pool's `engine` takes."""

    name: str
    #: how hard it is to get going: low, medium, high
    effort: str
    #: what makes it fast
    throughput: str
    #: where it fits
    fits: str
    #: what speaks against it
    cost: str
    #: the sentence to remember
    reason: str


#: in the order of "try this first"
CHOICES = (
    Choice(
        "vllm",
        "low",
        "PagedAttention, continuous batching, chunked prefill, prefix cache; its metrics page has queue and KV use",
        "most open models, API services, clusters that grow",
        "start-up takes minutes (compile, CUDA graphs); flags and defaults move between versions",
        "Begin here unless a row below describes you: least work for most of the speed.",
    ),
    Choice(
        "sglang",
        "medium",
        "RadixAttention: the KV cache of shared prefixes is kept as a tree; strong with large MoE and MLA models",
        "multi-turn chat, agents that call again and again with the same context",
        "smaller community: problems take longer to look up",
        "Take it when measured prefix reuse is high, or when it wins your own benchmark on your model.",
    ),
    Choice(
        "trtllm",
        "high",
        "compiled graphs, fused kernels, FP8 and FP4",
        "one model that stays for months on NVIDIA data-centre GPUs, at the last few per cent of throughput",
        "knowledge of CUDA and of the export; each new model or version is work again",
        "Not the first engine: change to it when the model is settled and the GPUs are the bill.",
    ),
    Choice(
        "llamacpp",
        "low",
        "GGUF quantisation from 2 to 8 bits; CPU, Metal and consumer GPUs; layers split between CPU and GPU",
        "one card or none, small fleets at the edge, models that do not fit otherwise",
        "a fixed number of slots divides the context; far from vLLM's throughput at high concurrency",
        "Take it where memory is what you lack and requests are few.",
    ),
    Choice(
        "ollama",
        "low",
        "llama.cpp's, with one command to fetch and run a model",
        "one person's machine, a demonstration",
        "no metrics page: only requests in flight can be balanced; few knobs",
        "Good for the first day; for users in production move to vllm or llamacpp.",
    ),
    Choice(
        "transformers",
        "low",
        "the newest model code on the day of its release; continuous batching only where it is switched on",
        "trying a model that no other engine knows yet, checking another engine's output",
        "about a third of what the GPU can do, often a fifth of vLLM's throughput on the same card",
        "To look at a model, not to serve it: change the engine before you buy a second GPU.",
    ),
)
