"""Do three load testers say the same of the same server, and is the knee where it has to be?

python -m benchmarks.bench_truth                      # agreement: 12 to 40 minutes on two quiet cores
python -m benchmarks.bench_truth --requests own       # the same, each tool with the request that it sends by itself
python -m benchmarks.bench_truth --fields             # what does a field cost in which they differ? 10 minutes
python -m benchmarks.bench_truth --knees 4,8,16       # the knee: about 5 minutes each
python -m benchmarks.bench_truth --quick              # does it all still work?
"""

from __future__ import annotations

import argparse
import json
import secrets
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.bench_truth import fields, guidellm, kilocard_bench, rounds, tables, vllm_bench
from benchmarks.bench_truth.engine_says import Counters
from benchmarks.bench_truth.load import Load
from benchmarks.bench_truth.measured import Lost, Measured
from benchmarks.bench_truth.request import OWN, SAME
from benchmarks.bench_truth.rounds import Row
from benchmarks.bench_truth.sent import relay
from benchmarks.bench_truth.server import Engine, serving
from benchmarks.bench_truth.verdict import Verdict

CACHE = Path.home() / ".cache" / "kilocard-benchmarks"
#: a tool that lost requests measures again, so often at most
TRIES = 4

#: URL, load, fields of the body → what it says
Tool = Callable[[str, Load, Mapping[str, Any]], Measured]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tools", default="kilocard,vllm,guidellm", help="the first is set beside the others")
    parser.add_argument("--requests", choices=("same", "own"), default="same", help="do all send the same fields?")
    parser.add_argument("--concurrency", default="1,4,8", help="with --max-num-seqs 8")
    parser.add_argument("--input", type=int, default=128)
    parser.add_argument("--output", type=int, default=64)
    parser.add_argument("--spreads", default="0,0.5", help="of the answers' lengths, as shares")
    parser.add_argument("--waves", type=int, default=8, help="requests a point: so many times the concurrency")
    parser.add_argument("--rounds", type=int, default=3, help="of each load, at least")
    parser.add_argument("--most-rounds", type=int, default=10, help="of a load on which tools are not decided yet")
    parser.add_argument("--fields", action="store_true", help="instead: what does a field of the request cost?")
    parser.add_argument("--knees", help="instead: find the knee at these max-num-seqs, such as 4,8,16")
    parser.add_argument("--quick", action="store_true", help="one point, one round")
    parser.add_argument("--url", help="of a vLLM that runs already with --max-num-seqs 8; default: one is started")
    parser.add_argument("--cache", type=Path, default=CACHE)
    parser.add_argument("--json", type=Path, help="write everything measured here")
    parser.add_argument(
        "--earlier", type=Path, nargs="*", default=[], help="files of --json: their rounds count too (--rounds 0: only)"
    )
    options = parser.parse_args()
    if not options.rounds:
        return show(rounds.read(options.earlier))
    engine = Engine.built()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if options.knees:
            return knees(engine, [int(part) for part in options.knees.split(",")], folder)
        if options.quick:
            options.concurrency, options.waves, options.spreads = "4", 3, "0.5"
            options.rounds = options.most_rounds = 1
        server = nullcontext(options.url) if options.url else serving(engine, 8, folder / "vllm.log")
        with server as url:
            if options.fields:
                for load in (load for load in _loads(options) if not load.spread):
                    print(f"\n{fields.cost(url, load, options.rounds, folder)}", flush=True)
                return 0
            earlier = rounds.read(options.earlier)
            measured = agreement(engine, url, options, folder, earlier)
    if options.json:
        rounds.write(measured, options.json)
    return show(rounds.joined([earlier, measured]), open_is_fine=options.quick)


def agreement(
    engine: Engine, url: str, options: argparse.Namespace, folder: Path, earlier: Sequence[Row] = ()
) -> list[Row]:
    """Rounds of all loads, then of those on which the tools neither agree nor are apart, with the earlier rounds."""
    chosen = options.tools.split(",")
    program = guidellm.install(engine, options.cache) if "guidellm" in chosen else Path()
    tools: dict[str, Tool] = {
        "kilocard": lambda url, load, body: kilocard_bench.run(url, load, folder, body),
        "vllm": lambda url, load, body: vllm_bench.run(engine, url, load, folder, body),
        "guidellm": lambda url, load, body: guidellm.run(program, engine, url, load, folder, body),
    }
    body = SAME if options.requests == "same" else OWN
    loads = _loads(options)
    sent = {name: _sent(tools[name], url, replace(loads[0], concurrency=1, requests=2), body) for name in chosen}
    for name, said in sent.items():
        print(f"{name} sends {json.dumps(said)}")
    if options.requests == "same" and len({json.dumps(said, sort_keys=True) for said in sent.values()}) > 1:
        raise SystemExit("the tools do not send the same request: their numbers are of different work")
    found: list[Row] = []
    for number in range(max(options.rounds, options.most_rounds)):
        for load in loads if number < options.rounds else _open(loads, rounds.joined([earlier, found])):
            # another order in each round: who comes first has the cooler processor
            for name in chosen[number % len(chosen) :] + chosen[: number % len(chosen)]:
                found.append(_measured(tools[name], url, number, load, body))
                print(tables.line(found[-1]), file=sys.stderr)
    return found


def _open(loads: Sequence[Load], rows: Sequence[Row]) -> list[Load]:
    """Those on which more rounds may decide."""
    return [load for load in loads if tables.verdict(rows, load.place) is Verdict.OPEN]


def _sent(tool: Tool, url: str, load: Load, body: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of its requests, looked at on the way to the server."""
    # a request that a tool loses was seen all the same
    with relay(url) as (through, sent), suppress(Lost):
        tool(through, load, body)
    return sent.fields()


def _measured(tool: Tool, url: str, number: int, load: Load, body: Mapping[str, Any]) -> Row:
    for _ in range(TRIES):
        # prompts that the server has not seen, from another tool or in an earlier run either
        load = replace(load, seed=secrets.randbelow(1_000_000_000))
        before = Counters.read(url)
        try:
            return Row(number, load, tool(url, load, body), before.until(Counters.read(url)))
        except Lost as lost:
            print(f"{lost}: measured again", file=sys.stderr)
    raise SystemExit(f"requests were lost {TRIES} times")


def _loads(options: argparse.Namespace) -> list[Load]:
    found = []
    for spread in map(float, options.spreads.split(",")):
        waves = options.waves * (2 if spread else 1)  # chance has to even out
        # one at a time no slot waits for another, whatever the lengths
        sizes = [size for size in map(int, options.concurrency.split(",")) if not spread or size > 1]
        found += [Load(size, options.input, options.output, spread, size * waves, seed=0) for size in sizes]
    return found


def show(rows: Sequence[Row], *, open_is_fine: bool = False) -> int:
    """Exit code 1 where two tools are too far apart, or where the rounds are too few to say."""
    print(f"\n{tables.agreement(rows)}\n\n{tables.engine(rows)}")
    found = tables.verdict(rows)
    if found is Verdict.OPEN:
        print("\nNot decided: more rounds are needed (--json FILE now, --earlier FILE then).")
    return int(found is Verdict.APART or (found is Verdict.OPEN and not open_is_fine))


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


if __name__ == "__main__":
    sys.exit(main())
