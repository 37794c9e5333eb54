"""Metrics pages → one EngineSample: which page speaks which dialect, and how those of several replicas add up. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from kilocard.bench.point import EngineSample
from kilocard.core.load import LoadSample
from kilocard.engines.external import PAGES
from kilocard.metrics import names
from kilocard.metrics.dialect import Dialect
from kilocard.metrics.fast import Layout, extract
from kilocard.metrics.load import says_nothing

#: a kilocard gateway's admin page: what it believes of its replicas
_GATEWAY = Dialect(
    running=(names.REPLICA_RUNNING.name,),
    waiting=(names.REPLICA_WAITING.name,),
    kv_usage=(names.REPLICA_KV_USAGE.name,),
    prompt_tokens_total=(names.PROMPT_TOKENS.name,),
    generation_tokens_total=(names.GENERATION_TOKENS.name,),
)
#: the same page: requests that wait in the gateway wait as well
_HELD = Dialect(waiting=(names.HELD_REQUESTS.name,))

#: pages that are tried when none is named; /metrics last, since TensorRT-LLM's is a queue that reading empties
PATHS = tuple(sorted({page.path for page in PAGES}, key=len, reverse=True))
#: what a page may speak
DIALECTS = (*(page.dialect for page in PAGES), _GATEWAY)


@dataclass(slots=True)
class Page:
    """One metrics page. Remembers where names stand on it, so use it for one server only."""

    url: str
    dialect: Dialect
    layout: Layout = field(default_factory=Layout, repr=False, compare=False)

    @property
    def is_gateway(self) -> bool:
        return self.dialect is _GATEWAY

    def read(self, body: bytes, at: float) -> LoadSample:
        """Raises NotExposition."""
        sample = extract(body, self.dialect, at, (), self.layout)
        if self.is_gateway:
            held = extract(body, _HELD, at).waiting
            if held is not None:
                sample = sample._replace(waiting=held + (sample.waiting or 0.0))
        return sample


def page_of(url: str, body: bytes) -> Page | None:
    """The page at `url`, if something on it is known to us. Raises NotExposition for what is no metrics page."""
    for dialect in DIALECTS:
        if not says_nothing(extract(body, dialect, 0.0)):
            return Page(url, dialect)
    return None


def together(samples: Sequence[LoadSample], at_s: float) -> EngineSample:
    """What all replicas have together; KV use is that of the fullest. A quantity that one of them lacks is unknown:
    a sum without it would be too small."""
    kv = _all(sample.kv_usage for sample in samples)
    return EngineSample(
        at_s,
        running=_sum(sample.running for sample in samples),
        waiting=_sum(sample.waiting for sample in samples),
        kv_usage=max(kv) if kv else None,
        preemptions=_sum(sample.preemptions_total for sample in samples),
        prefix_queries=_sum(sample.prefix_queries_total for sample in samples),
        prefix_hits=_sum(sample.prefix_hits_total for sample in samples),
    )


def _all(values: Iterable[float | None]) -> list[float] | None:
    found = list(values)
    known = [value for value in found if value is not None]
    return known if known and len(known) == len(found) else None


def _sum(values: Iterable[float | None]) -> float | None:
    known = _all(values)
    return sum(known) if known else None
