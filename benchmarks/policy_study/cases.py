"""What is played, as data: one Case is one run of the simulator."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import product
from typing import Any

from kilocard.routing.registry import POLICIES

REPLICAS = 16
SEEDS = (1, 2, 3)
#: of long prompts with many gateways or two kinds of GPU: p95 of 600 requests, some of which are computed for 20 s, so
#: three seeds agree by chance too often
MORE_SEEDS = (*SEEDS, 4, 5, 6, 7, 8)
#: seconds of arrivals that fill caches and queues, and seconds of those that count; long prompts cost more to play
WARM_S = {"azure-code": 15.0, "azure-conv": 15.0, "mooncake-conv": 45.0, "mooncake-synth": 45.0}
COUNTED_S = {"azure-code": 30.0, "azure-conv": 30.0, "mooncake-conv": 120.0, "mooncake-synth": 120.0}
#: the engine's blocks, in tokens: the traces' are 512, vLLM's 16; these take a third of the time and differ by nothing
#: that can be seen
BLOCK_TOKENS = 128

#: name in the study: file of the public trace (docs/workloads.md)
TRACES = {
    "azure-code": "azure-llm-2023-code.csv",
    "azure-conv": "azure-llm-2023-conv.csv",
    "mooncake-conv": "mooncake-fast25-conversation.jsonl",
    "mooncake-synth": "mooncake-fast25-synthetic.jsonl",
}
#: per cent of capacity
LOADS = (50, 70, 80, 90, 100, 110)
GATEWAYS = (1, 4, 16)
SCRAPES = (0.1, 1.0, 5.0)
#: where one load stands for all
USUAL_LOAD = 80
#: steps of the stragglers take so many times as long; two replicas of sixteen
STRAGGLERS, SLOWER = 2, 3.0

#: the hold queue is compared at these loads, with these policies
HOLD_LOADS = (90, 110)
HOLD_POLICIES = ("round_robin", "queue_depth", "prefix_affinity")

SECTIONS = ("load", "herding", "stragglers", "mixed", "hold")


@dataclass(frozen=True, slots=True)
class Case:
    section: str
    trace: str
    policy: str
    seed: int
    load: int = USUAL_LOAD
    gateways: int = 1
    scrape_s: float = 1.0
    #: replicas that are SLOWER
    stragglers: int = 0
    #: pools of the cluster file: half of the replicas each, where there are two
    pools: tuple[str, ...] = ("a100",)
    #: share of the requests that each pool's weight asks for: "count", "speed"
    weights: str = "count"
    #: whether requests wait in the gateway while all replicas are hot
    hold: bool = True

    @property
    def key(self) -> str:
        """What says which run it is, but for the policy and the seed first."""
        return "/".join(
            (
                self.section, self.trace, f"{self.load}%", f"{self.gateways}gw", f"{self.scrape_s:g}s",
                f"{self.stragglers}slow", "+".join(self.pools), self.weights, "hold" if self.hold else "straight",
                self.policy, str(self.seed),
            )
        )  # fmt: skip

    def told(self) -> dict[str, Any]:
        return {**asdict(self), "pools": list(self.pools)}


def cases() -> Iterator[Case]:
    """All of them, seed by seed: a study that is interrupted has something whole."""
    for seed in SEEDS:
        yield from of_seed(seed)
    for seed in MORE_SEEDS[len(SEEDS) :]:
        yield from long_prompts(seed)


def of_seed(seed: int) -> Iterator[Case]:
    policies = tuple(POLICIES)
    for trace, load, policy in product(TRACES, LOADS, policies):
        yield Case("load", trace, policy, seed, load)
    for gateways, scrape, policy in product(GATEWAYS, SCRAPES, policies):
        yield Case("herding", "azure-code", policy, seed, gateways=gateways, scrape_s=scrape)
    yield from long_prompts(seed)
    for trace, policy in product(TRACES, policies):
        yield Case("stragglers", trace, policy, seed, stragglers=STRAGGLERS)
    yield from mixed("azure-conv", seed)
    for trace, load, hold, policy in product(TRACES, HOLD_LOADS, (True, False), HOLD_POLICIES):
        if not hold:  # with the hold queue it is in the first section
            yield Case("hold", trace, policy, seed, load, hold=False)
        if trace.startswith("azure"):  # elsewhere KV caches are full before slots are
            yield Case("hold", trace, policy, seed, load, pools=("a100-32",), hold=hold)


def long_prompts(seed: int) -> Iterator[Case]:
    for gateways, policy in product(GATEWAYS, POLICIES):
        yield Case("herding", "mooncake-conv", policy, seed, gateways=gateways)
    yield from mixed("mooncake-conv", seed)


def mixed(trace: str, seed: int) -> Iterator[Case]:
    for weights, policy in product(("count", "speed"), POLICIES):
        yield Case("mixed", trace, policy, seed, pools=("a100", "h100"), weights=weights)
