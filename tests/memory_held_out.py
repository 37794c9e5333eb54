"""Start-up logs that were collected after the memory model was made: what it says of logs that it had not seen.

They come from public code and notes, found by searching for lines of start-up logs; a configuration was taken when the
model and its settings stand beside the log. A row with something in `fitted` has since been used for a number (the
graphs of the second model runner, what PCIe groups hold outside PyTorch): it is in-sample now and counted apart. No
other number was changed for a row here; what was wrong in kind (which runner a version takes, states of a hybrid
model, a layer's width) was mended, and these rows show that it is.
"""

from __future__ import annotations

import csv
import functools
from pathlib import Path
from typing import Any

from tests.ground_truth_errors import Error

from kilocard.cli.model_source import builtin_models
from kilocard.core.errors import KilocardError
from kilocard.perf.catalogue import find
from kilocard.perf.gpus import gpu
from kilocard.perf.layout import Layout
from kilocard.perf.memory import Memory, memory
from kilocard.perf.setting import EngineSetting

FILE = Path(__file__).parent / "data" / "memory-held-out.csv"
MODELS = builtin_models()
#: rows that the model misses, and why
MISSES = {
    "ho10": "the GiB are one worker's, the tokens follow from the one with least",
    "ho12": "0.8.5 with V1 off: engine V0 was still chosen for this model, whose sampler is not profiled so",
    "ho22": "GPU memory under this driver is not stated: 0.2 GiB of 5.5",
    "ho23": "4-bit weights as Machete keeps them: 0.18 GiB more than the checkpoint's",
    "ho29": "2.5 GiB that are neither weights nor peak, in this log and the next; 0.5 for 27 billion parameters",
    "ho30": "as ho29",
    "ho31": "0.5 GiB beside the weights where 0.25 is usual",
    "ho33": "a peak of 2.2 GiB with the graphs' estimate in it, where the vision tower alone is put at 2.0",
}


@functools.cache
def rows() -> list[dict[str, str]]:
    with FILE.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def predicted(row: dict[str, str], **pins: Any) -> Memory:
    """As `kilocard plan` would with the flags that the row states. Raises KilocardError like it."""
    flags = dict(each.split("=") for each in row["flags"].split(";") if each)
    layout = Layout(int(row["tensor"] or 1), int(row["pipeline"] or 1), expert=int(flags.pop("expert", 1)))
    switches: dict[str, Any] = {name: int(value) if name == "images" else value == "1" for name, value in flags.items()}
    setting = EngineSetting(
        version=row["version"] or None,
        utilization=float(row["utilization"]) if row["utilization"] else None,
        max_model_len=int(row["max_model_len"]) if row["max_model_len"] else None,
        max_num_seqs=int(row["max_num_seqs"]) if row["max_num_seqs"] else None,
        max_num_batched_tokens=int(row["max_num_batched_tokens"]) if row["max_num_batched_tokens"] else None,
        dtype=row["dtype"] or "auto",
        quantization=row["quantization"] or None,
        kv_cache_dtype=row["kv_dtype"] or "auto",
        gpu_memory_gib=float(row["total_gib"]) if row["total_gib"] else None,
        **switches,
        **pins,
    )
    # a card that is not named matters only for defaults: one of 48 GB gets the small ones
    return memory(find(row["model"], MODELS).architecture, gpu(row["gpu"] or "A6000"), layout, setting)


def _pinned() -> list[tuple[dict[str, str], Memory]]:
    return [(row, predicted(row, kv_gib=float(row["kv_gib"]))) for row in rows() if row["kv_gib"]]


@functools.cache
def tokens_from_gib() -> list[Error]:
    return [
        Error(row["id"], row["model"], float(row["kv_tokens"]), found.kv_tokens, 0.005 / float(row["kv_gib"]))
        for row, found in _pinned()
        if row["kv_tokens"]
    ]


@functools.cache
def concurrency_from_gib() -> list[Error]:
    """Of all models, hybrid or not; the log rounds it to two digits."""
    return [
        Error(
            row["id"],
            row["model"],
            float(row["max_concurrency"]),
            found.max_concurrency,
            0.005 / float(row["max_concurrency"]) + 0.005 / float(row["kv_gib"]),
        )
        for row, found in _pinned()
        if row["max_concurrency"]
    ]


@functools.cache
def kv_from_config(*, fitted: bool) -> list[Error]:
    """GiB of the cache from the config alone, of rows that state card, version and what else it takes; or tokens."""
    errors = []
    for row in rows():
        known = row["gpu"] and row["version"] and "not stated" not in row["note"]
        if not known or bool(row["fitted"]) is not fitted:
            continue
        try:
            found = predicted(row)
        except KilocardError:
            continue
        in_gib = bool(row["kv_gib"])
        expected = float(row["kv_gib"] or row["kv_tokens"])
        errors.append(Error(row["id"], row["model"], expected, found.kv_gib_per_gpu if in_gib else found.kv_tokens))
    return errors


@functools.cache
def weights_from_config() -> list[Error]:
    found = [(row, predicted(row, kv_gib=float(row["kv_gib"]))) for row in rows() if row["weights_gib"]]
    return [Error(row["id"], row["model"], float(row["weights_gib"]), m.weights_gib_per_gpu) for row, m in found]
