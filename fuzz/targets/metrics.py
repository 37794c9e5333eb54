"""Metrics pages: the fast reader says what the exact one says, with a remembered layout and without."""

from __future__ import annotations

from contextlib import suppress

from kilocard.core.load import LoadSample
from kilocard.metrics.dialect import Dialect
from kilocard.metrics.exact import parse
from kilocard.metrics.exposition_error import NotExposition
from kilocard.metrics.fast import extract
from kilocard.metrics.load import sample_from

_DIALECTS = (
    Dialect(
        running=("run", "e:run"), waiting=("wait",), kv_usage=("kv",), prompt_tokens_total=("tok_total",),
        generation_tokens_total=("tok",), kv_config=("info", "size", "blocks"), sum_over=("engine",),
    ),
    Dialect(
        running=("e:run",), waiting=("wait", "run"), kv_usage=("info",), preemptions_total=("kv",),
        copies_over=("rank",), aggregate=(("p", ""),), kv_tokens_label="engine",
    ),
)  # fmt: skip
SEEDS = [
    b'# HELP run x\nrun{engine="0"} 3\nrun{engine="1"} 4\nwait 1\nkv{model_name="m"} 0.5\ntok_total 12\ntok 7.5e2\n',
    b'# x\ninfo{size="16",blocks="99",rank="0"} 1\ninfo{rank="1"} NaN 1712345678\n e:run +Inf\nwait{p=""} -4\n# EOF',
    b'# x\nrun{a="} 5",b="q\\"\\\\\\n"} 1 # {id="} 9"} 0.3\nrunning 2\nrun\t2\r\n',
    b'"# x\\nrun 3\\n"',
    b"<html>",
]


def check(data: bytes) -> None:
    for dialect in _DIALECTS:
        for models in ((), ("m",)):
            exact: LoadSample | None = None
            fast: LoadSample | None = None
            with suppress(NotExposition):
                exact = sample_from(parse(data).samples, dialect, 1.0, models)
            with suppress(NotExposition):
                fast = extract(data, dialect, 1.0, models)
            assert fast == exact
