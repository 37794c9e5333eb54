"""Do three load testers say the same of the same server, and is the knee where it has to be?

python -m benchmarks.bench_truth                      # agreement: about 12 minutes on two quiet cores
python -m benchmarks.bench_truth --knees 4,8,16       # the knee: about 5 minutes each
python -m benchmarks.bench_truth --quick              # does it all still work?
"""

from __future__ import annotations

import argparse
import json
import secrets
import statistics
import sys
import tempfile
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path

from benchmarks.bench_truth import guidellm, kilocard_bench, vllm_bench
from benchmarks.bench_truth.engine_says import Counters, EngineSays
from benchmarks.bench_truth.load import Load
from benchmarks.bench_truth.measured import Lost, Measured
from benchmarks.bench_truth.server import Engine, serving

CACHE = Path.home() / ".cache" / "kilocard-benchmarks"
#: a tool that lost requests measures again, so often at most
TRIES = 4
#: name, Measured's field, how far apart tools may be, judged with answers of one length, and of many
COMPARED = (
    ("output tok/s", "output_tokens_per_s", 0.03, True, False),
    ("TTFT mean", "ttft_s", 0.05, False, True),
    ("TPOT mean", "tpot_s", 0.05, True, True),
    ("e2e mean", "e2e_s", 0.05, True, False),  # follows the lengths that were drawn
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tools", default="kilocard,vllm,guidellm")
    parser.add_argument("--concurrency", default="1,4,8", help="with --max-num-seqs 8")
    parser.add_argument("--input", type=int, default=128)
    parser.add_argument("--output", type=int, default=64)
    parser.add_argument("--spreads", default="0,0.5", help="of the answers' lengths, as shares")
    parser.add_argument("--waves", type=int, default=8, help="requests a point: so many times the concurrency")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--knees", help="instead: find the knee at these max-num-seqs, such as 4,8,16")
    parser.add_argument("--quick", action="store_true", help="one point, one repeat")
    parser.add_argument("--url", help="of a vLLM that runs already with --max-num-seqs 8; default: one is started")
    parser.add_argument("--cache", type=Path, default=CACHE)
    parser.add_argument("--json", type=Path, help="write everything measured here")
    options = parser.parse_args()
    engine = Engine.built()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if options.knees:
            return knees(engine, [int(part) for part in options.knees.split(",")], folder)
        if options.quick:
            options.concurrency, options.repeats, options.waves, options.spreads = "4", 1, 3, "0.5"
        return agreement(engine, options, folder)


def agreement(engine: Engine, options: argparse.Namespace, folder: Path) -> int:
    chosen = options.tools.split(",")
    program = guidellm.install(engine, options.cache) if "guidellm" in chosen else Path()
    tools = {
        "kilocard": lambda url, load: kilocard_bench.run(url, load, folder),
        "vllm": lambda url, load: vllm_bench.run(engine, url, load, folder),
        "guidellm": lambda url, load: guidellm.run(program, engine, url, load, folder),
    }
    measured: list[tuple[Load, Measured]] = []
    engine_said: list[EngineSays] = []
    server = nullcontext(options.url) if options.url else serving(engine, 8, folder / "vllm.log")
    with server as url:
        # prompts that the server has not seen in an earlier run either
        seed = secrets.randbelow(1_000_000_000)
        spreads = [float(part) for part in options.spreads.split(",")]
        sizes = [int(part) for part in options.concurrency.split(",")]
        points = [(spread, size) for spread in spreads for size in sizes if not spread or size > 1]
        for repeat in range(options.repeats):
            for spread, concurrency in points:
                # another order in each round: who comes first has the cooler processor
                for name in chosen[repeat % len(chosen) :] + chosen[: repeat % len(chosen)]:
                    requests = concurrency * options.waves * (2 if spread else 1)  # chance has to even out
                    for _ in range(TRIES):
                        seed += 1
                        load = Load(concurrency, options.input, options.output, spread, requests, seed)
                        before = Counters.read(url)
                        try:
                            measured.append((load, tools[name](url, load)))
                            engine_said.append(before.until(Counters.read(url)))
                        except Lost as lost:
                            print(f"{_named(load)}  {lost}: measured again", file=sys.stderr)
                            continue
                        print(f"{_named(load)}  {_line(measured[-1][1])}", file=sys.stderr)
                        break
                    else:
                        raise SystemExit(f"{name} lost requests {TRIES} times")
    if options.json:
        rows = zip(measured, engine_said, strict=True)
        document = [asdict(load) | asdict(each) | {"engine": asdict(said)} for (load, each), said in rows]
        options.json.write_text(json.dumps(document, indent=1))
    failed = print_table(measured)
    print_engine(measured, engine_said)
    return failed


def print_table(measured: list[tuple[Load, Measured]]) -> int:
    """Medians over the repeats, as Markdown. Exit code 1 where two tools are too far apart."""
    tools = list(dict.fromkeys(each.tool for _, each in measured))
    print(f"| load | what | {' | '.join(tools)} | apart |\n|---|---|{'---:|' * (len(tools) + 1)}")
    failed = 0
    for place in dict.fromkeys((load.spread, load.concurrency) for load, _ in measured):
        here = [(load, each) for load, each in measured if (load.spread, load.concurrency) == place]
        for name, field, limit, with_one, with_many in COMPARED:
            values = {tool: [getattr(each, field) for _, each in here if each.tool == tool] for tool in tools}
            middle = {tool: statistics.median(each) for tool, each in values.items()}
            apart = max(middle.values()) / min(middle.values()) - 1
            judged = with_many if place[0] else with_one or place[1] == 1
            verdict = (f"≤ {limit:.0%}" if apart <= limit else f"**> {limit:.0%}**") if judged else "not judged"
            failed |= judged and apart > limit
            cells = [f"{_shown(field, middle[tool])} ({_spread(values[tool]):.1%})" for tool in tools]
            print(f"| {_named(here[0][0])} | {name} | {' | '.join(cells)} | {apart:.1%}, {verdict} |")
    print("\nIn brackets: how far the repeats of one tool are apart. Tokens of a request, by each tool's own count:")
    for tool in tools:
        own = [each for _, each in measured if each.tool == tool]
        counts = [statistics.fmean(getattr(each, name) for each in own) for name in ("input_tokens", "output_tokens")]
        print(f"- {tool}: {counts[0]:.1f} in, {counts[1]:.1f} out")
    return int(failed)


def print_engine(measured: list[tuple[Load, Measured]], engine_said: list[EngineSays]) -> None:
    """Each tool beside what the engine counted while that tool measured. Medians over the repeats."""
    print("\n| load | tool | TPOT: tool, engine | off | e2e: tool, engine | off |\n|---|---|---:|---:|---:|---:|")
    rows = [(load, each, said) for (load, each), said in zip(measured, engine_said, strict=True)]
    for place in dict.fromkeys((_named(load), each.tool) for load, each, _ in rows):
        here = [(each, said) for load, each, said in rows if (_named(load), each.tool) == place]
        cells = []
        for field in ("tpot_s", "e2e_s"):
            tool, engine = (statistics.median(getattr(pair[side], field) for pair in here) for side in (0, 1))
            off = statistics.median(getattr(each, field) / getattr(said, field) - 1 for each, said in here)
            cells.append(f"{_shown(field, tool)}, {_shown(field, engine)} | {off:+.1%}")
        print(f"| {place[0]} | {place[1]} | {' | '.join(cells)} |")


def knees(engine: Engine, sizes: list[int], folder: Path) -> int:
    wrong = 0
    print("| --max-num-seqs | knee | best --max-num-seqs | limit | points: at once → tok/s |\n|---:|---:|---:|---|---|")
    for size in sizes:
        with serving(engine, size, folder / f"vllm-{size}.log") as url:
            results = kilocard_bench.sweep(url, folder / f"knee-{size}")
        knee = results["knee"]["concurrency"]
        curve = sorted((point["concurrency"], point["output_tokens_per_s"]) for point in results["points"])
        said = ", ".join(f"{at} → {speed:.0f}" for at, speed in curve)
        print(f"| {size} | {knee} | {results['best_max_num_seqs']} | {results['limit']} | {said} |", flush=True)
        wrong |= knee != size
    return wrong


def _named(load: Load) -> str:
    lengths = f"{load.shortest}–{load.longest}" if load.spread else f"{load.output}"
    return f"{load.concurrency} at once, {lengths} tokens"


def _line(each: Measured) -> str:
    parts = [f"{name} {_shown(field, getattr(each, field))}" for name, field, *_ in COMPARED]
    return f"{each.tool:17} {', '.join(parts)}"


def _shown(field: str, value: float) -> str:
    return f"{value:.1f}" if field.endswith("per_s") else f"{value * 1e3:.1f} ms"


def _spread(values: list[float]) -> float:
    return max(values) / min(values) - 1


if __name__ == "__main__":
    sys.exit(main())
