"""Measured points of real engines (tests/data/speed/points.csv) as what the speed model is asked and has to answer."""

from __future__ import annotations

import csv
import json
import zlib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from kilocard.perf.architecture import Architecture
from kilocard.perf.gpus import Gpu, gpu
from kilocard.perf.layout import Layout
from kilocard.perf.quantization import Quantization, quantization
from kilocard.perf.read_config import read_architecture
from kilocard.perf.step_work import StepWork, step_work

#: (prompt, output) of InferenceX's runs: lengths are even between 0.8 and 1 of these (its `--random-range-ratio 0.8`);
#: the table's other runs, AIConfigurator's own, have the lengths that are printed
RANGED = {(1024, 1024), (1024, 8192), (8192, 1024)}
RANGED_MEAN = 0.9

DATA = Path(__file__).parent.parent / "data" / "speed"


@dataclass(frozen=True)
class Point:
    """One measured point. Seconds, tokens; None: not stated."""

    id: str
    source: str
    model: str
    gpu_name: str
    layout: Layout
    engine: str
    version: str
    quantization: str
    input: float
    output: float
    concurrency: float | None
    rate: float | None
    requests: float | None
    max_num_seqs: int | None
    max_num_batched_tokens: int | None
    requests_per_s: float | None
    output_tokens_per_s: float | None
    ttft_s: float | None
    tpot_s: float | None
    checkpoint: str
    #: as the table says them; what its concurrency counts when they are more than the tensor-parallel group is not said
    gpus: int | None = None
    data: int | None = None

    @property
    def one_group(self) -> bool:
        """All GPUs are one tensor-parallel group."""
        return self.gpus in {None, self.layout.tensor} and self.data in {None, 1}

    @property
    def curve(self) -> str:
        """Points that differ in concurrency or rate alone."""
        return "|".join(
            str(part)
            for part in (
                self.source, self.engine, self.version, self.model, self.gpu_name, self.layout, self.quantization,
                self.input, self.output,
            )
        )  # fmt: skip

    @property
    def family(self) -> str:
        """Models of one shape: what the table calls DeepSeek-V3 are runs of R1, and V3.1 has its shape."""
        return "DeepSeek-R1" if "/DeepSeek-" in self.model else self.model.split("/")[-1]

    @property
    def prompt(self) -> float:
        """Mean prompt that ran."""
        return self.input * (RANGED_MEAN if self._ranged else 1)

    @property
    def reply(self) -> float:
        """Mean output that ran."""
        return self.output * (RANGED_MEAN if self._ranged else 1)

    @property
    def _ranged(self) -> bool:
        return self.source == "aic" and (self.input, self.output) in RANGED

    @property
    def fold(self) -> int:
        """0 or 1, by a checksum of the curve, of all versions: whole curves, so that no point has a neighbour of its
        own curve in the other fold."""
        whole = "|".join(
            map(
                str,
                (self.engine, self.family, self.gpu_name, self.layout, self.quantization, self.input, self.output),
            )
        )
        return zlib.crc32(whole.encode()) % 2

    @property
    def group(self) -> str:
        return f"{self.source}|{self.model}|{self.gpu_name}|{self.version}"

    @property
    def cached(self) -> float:
        """Prompt tokens that the prefix cache had. The runs of 0.15.1 send each prompt again and again; what is not
        said is taken from that: all whole blocks but the last position are cached."""
        return (self.input - 1) // 16 * 16 if self.source == "inference-sim" and self.version == "0.15.1" else 0.0

    @property
    def architecture(self) -> Architecture:
        return architecture(self.model)

    @property
    def gpu(self) -> Gpu:
        return gpu(self.gpu_name)

    @property
    def kind(self) -> str:
        return "experts" if self.architecture.experts else "dense"

    @property
    def weights(self) -> Quantization | None:
        """Of the checkpoint that ran: the model's own, unless the table says another."""
        own = self.architecture.quantization
        named = {"fp8_block": "fp8-block", "int4_wo": "w4a16"}.get(self.quantization, self.quantization)
        if own is not None and own.method in {"mxfp4", "int4"}:
            return own
        if not named:
            return own
        return quantization(named)

    @property
    def kv_bits(self) -> int:
        """NVIDIA's own checkpoints (all NVFP4 ones) ask for an FP8 cache, and so do the public scripts of the benchmark
        (SemiAnalysisAI/InferenceX) for TensorRT-LLM, for SGLang on Blackwell, and for two models on vLLM; else 16."""
        asked = {
            "trtllm": True,
            "sglang": self.gpu_name in {"B200", "B300"},
            "vllm": self.model.endswith("Llama-3.1-70B-Instruct")
            or (self.model.endswith("MiniMax-M2.5") and self.gpu_name == "B300"),
        }.get(self.engine, False)
        return 8 if asked or self.checkpoint.startswith("nvidia/") or self.quantization == "nvfp4" else 16

    @property
    def batched_tokens(self) -> int:
        return self.max_num_batched_tokens or (2048 if self.gpu_name.startswith("A100") else 8192)

    @property
    def slots(self) -> int:
        return self.max_num_seqs or (256 if self.gpu_name.startswith("A100") else 1024)

    @property
    def kv_tokens(self) -> int:
        return _kv_tokens(self.model, self.gpu_name, self.layout, self.quantization, self.checkpoint, self.engine)

    @property
    def work(self) -> StepWork:
        return _work(self.model, self.gpu_name, self.layout, self.quantization, self.checkpoint, self.engine)


@cache
def architecture(model: str) -> Architecture:
    return read_architecture(_configs()[model], name=model)


@cache
def _configs() -> dict[str, dict[str, object]]:
    return dict(json.loads((DATA / "models.json").read_text()))


def _any(model: str, gpu_name: str, layout: Layout, quantized: str, checkpoint: str, engine: str) -> Point:
    return Point(
        "", "", model, gpu_name, layout, engine, "", quantized, 1, 1, None, None, None, None, None, None, None, None,
        None, checkpoint,
    )  # fmt: skip


@cache
def _work(model: str, gpu_name: str, layout: Layout, quantized: str, checkpoint: str, engine: str) -> StepWork:
    point = _any(model, gpu_name, layout, quantized, checkpoint, engine)
    return step_work(point.architecture, point.gpu, layout, quantization=point.weights, kv_bits=point.kv_bits)


@cache
def _kv_tokens(model: str, gpu_name: str, layout: Layout, quantized: str, checkpoint: str, engine: str) -> int:
    """Room at 0.9 of the memory, with 4 GiB a GPU for all but weights and cache: engines' settings are not stated."""
    point = _any(model, gpu_name, layout, quantized, checkpoint, engine)
    work = point.work
    embedding = (
        0 if point.architecture.tied else point.architecture.vocab * point.architecture.hidden * 2 / layout.tensor
    )
    left = (0.9 * point.gpu.memory_gib - 4) * 2**30 - work.weight_bytes - work.expert_bytes - embedding
    return int(left / work.kv_bytes) if work.kv_bytes else 10**8


def points() -> list[Point]:
    """All of them, in the file's order."""
    with (DATA / "points.csv").open() as file:
        return [_point(row) for row in csv.DictReader(file)]


def _point(row: dict[str, str]) -> Point:
    def number(name: str, unit: float = 1.0) -> float | None:
        return float(row[name]) * unit if row[name] else None

    expert = int(row["expert"] or 1)
    tensor = int(row["tensor"])
    return Point(
        id=row["id"], source=row["source"], model=row["model"], gpu_name=row["gpu"],
        layout=Layout(tensor=tensor, expert=min(expert, tensor)),
        engine=row["engine"], version=row["version"], quantization=row["quantization"],
        input=float(row["input"]), output=float(row["output"]),
        concurrency=number("concurrency"), rate=number("rate"), requests=number("requests"),
        max_num_seqs=int(row["max_num_seqs"]) if row["max_num_seqs"] else None,
        max_num_batched_tokens=int(row["max_num_batched_tokens"]) if row["max_num_batched_tokens"] else None,
        requests_per_s=number("requests_per_s"), output_tokens_per_s=number("output_tokens_per_s"),
        ttft_s=number("ttft_ms", 1e-3), tpot_s=number("tpot_ms", 1e-3), checkpoint=row["checkpoint"],
        gpus=int(row["gpus"]) if row["gpus"] else None, data=int(row["data"]) if row["data"] else None,
    )  # fmt: skip


def closed_loop(engine: str) -> list[Point]:
    """Points of AIConfigurator's silicon table that the model can be asked: one tensor-parallel group on one machine,
    weights that fit, room for one request in the cache. What stands there twice, under two names of a model or a
    version, is one measurement (the same TTFT and TPOT to the last digit) and counts once."""
    asked = [
        point
        for point in points()
        if point.source == "aic" and point.engine == engine and point.tpot_s and point.ttft_s
        and point.one_group and point.layout.tensor <= 8 and point.kv_tokens >= point.input + point.output
    ]  # fmt: skip
    once: dict[tuple[object, ...], Point] = {}
    for point in asked:
        once.setdefault((*_load(point), point.ttft_s, point.tpot_s), point)
    return list(once.values())


def _load(point: Point) -> tuple[object, ...]:
    return (
        point.family, point.gpu_name, point.layout.tensor, point.quantization, point.input, point.output,
        point.concurrency,
    )  # fmt: skip


def stages() -> list[Point]:
    """Runs of vLLM 0.15.1 at constant rates that the server kept up with: seven models and layouts."""
    return [p for p in points() if p.source == "inference-sim" and p.version == "0.15.1" and (p.ttft_s or 9) < 0.3]


def ladder() -> list[Point]:
    """Qwen3-14B on one H100, vLLM 0.23.0, 1,024 tokens in and 128 out, Poisson arrivals, 2 to 30 requests/s."""
    return [p for p in points() if p.source == "inference-sim" and p.version == "0.23.0" and p.input == 1024]
