"""Which names on an engine's metrics page mean what. Engines declare one; the extractors read it."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Dialect:
    """Names for each quantity of LoadSample, newest first; the first name that is on the page wins.

    An empty tuple says that the engine does not export the quantity: it stays unknown.
    """

    running: tuple[str, ...] = ()
    waiting: tuple[str, ...] = ()
    kv_usage: tuple[str, ...] = ()
    preemptions_total: tuple[str, ...] = ()
    prompt_tokens_total: tuple[str, ...] = ()
    generation_tokens_total: tuple[str, ...] = ()
    prefix_queries_total: tuple[str, ...] = ()
    prefix_hits_total: tuple[str, ...] = ()
    #: name of an info gauge with labels for the KV capacity: (metric, label of block size, label of block count)
    kv_config: tuple[str, str, str] | None = None
    #: label that tells data-parallel engines apart: their samples are summed (KV: the maximum). For readers; any
    #: label outside `copies_over` tells series apart
    sum_over: tuple[str, ...] = ()
    #: labels whose series are copies of one another: one is taken
    copies_over: tuple[str, ...] = ()
    #: only series where this label has this value, if the label is there (SGLang: priority="" is the aggregate)
    aggregate: tuple[tuple[str, str], ...] = field(default=())
    #: label of that info gauge that states the KV capacity in tokens outright, where newer versions have one
    kv_tokens_label: str | None = None
