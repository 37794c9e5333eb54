"""Start the real engine, load it with `kilocard bench`, keep what came out."""

from __future__ import annotations

import gzip
import json
import re
import secrets
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.bench_truth.server import Engine, ask, serving
from benchmarks.fidelity import stored
from benchmarks.fidelity.loads import CALIBRATION, CALIBRATION_SLOTS, Load, Part, arrivals
from benchmarks.fidelity.stored import Stored
from kilocard.bench import requests_log
from kilocard.bench import results as results_json
from kilocard.bench.document import Results
from kilocard.bench.requests_log import Line

#: files of a run that the calibration needs
RUN = ("results.json", "requests.jsonl")


@dataclass
class Measuring:
    engine: Engine
    #: what kilocard bench writes, load by load
    raw: Path
    #: where the small files go
    folder: Path
    say: Callable[[str], None] = lambda text: print(text, file=sys.stderr, flush=True)

    def calibration(self) -> None:
        """The sweep that the profile is fitted to."""
        with serving(self.engine, CALIBRATION_SLOTS, self.raw / "calibration.log") as url:
            run = self._bench(url, "calibration", CALIBRATION)
        target = self.folder / "calibration"
        target.mkdir(parents=True, exist_ok=True)
        for name in RUN:
            (target / f"{name}.gz").write_bytes(gzip.compress(_small(name, (run / name).read_bytes()), mtime=0))

    def part(self, part: Part) -> None:
        """All loads of one engine. Each is kept as soon as it is measured."""
        log = self.raw / f"{part.name}.log"
        found: list[Stored] = []
        with serving(self.engine, part.max_num_seqs, log, part.arguments) as url:
            for load in part.loads:
                name = f"{part.name} {load.name}"
                run = self._bench(url, name, self._words(part, load, found))
                results, lines = _read(run)
                found.append(stored.taken(load.name, results.points[0], lines))
                facts = {"max_num_seqs": part.max_num_seqs, "kv_tokens": results.target.kv_tokens}
                facts |= {"engine_version": results.target.engine_version, "date": results.about.started_at[:10]}
                stored.write(part.name, facts, found, self.folder)
                self.say(f"{name}: {len(lines)} requests, {found[-1].limited or 'the client kept up'}")

    def _words(self, part: Part, load: Load, found: list[Stored]) -> list[str]:
        if load.closed is not None:
            return ["--sweep", str(load.closed), "--requests", str(load.requests), "--mix", load.mix, "--no-single"]
        if load.of:
            capacity = next(each.requests_per_s for each in found if each.name == load.of)
        else:
            with calibration_run(self.folder) as run:
                capacity = _read(run)[0].points[-1].requests_per_s
        trace = self.raw / f"{part.name} {load.name}.trace.jsonl"
        trace.write_text(
            "".join(
                json.dumps(
                    {
                        "timestamp": round(request.at_s * 1e3),
                        "input_length": request.input_tokens,
                        "output_length": request.output_tokens,
                    }
                )
                + "\n"
                for request in arrivals(load, capacity)
            )
        )
        return ["--trace", str(trace), "--no-single"]

    def _bench(self, url: str, name: str, words: list[str]) -> Path:
        run = self.raw / name
        seed = ["--seed", str(secrets.randbelow(1_000_000))]
        argv = [sys.executable, "-m", "kilocard", "bench", url, "--endpoint", "completions", *words, *seed]
        done = ask([*argv, "--out", str(run)], {})
        if not (run / "results.json").exists():
            raise SystemExit(
                f"kilocard bench: exit code {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
            )
        return run


@contextmanager
def calibration_run(folder: Path) -> Iterator[Path]:
    """The folder that `kilocard bench` wrote of the calibration's sweep."""
    with tempfile.TemporaryDirectory() as name:
        for file in RUN:
            packed = folder / "calibration" / f"{file}.gz"
            if not packed.exists():
                raise SystemExit(f"{packed} is not there: `python -m benchmarks.fidelity measure calibration` first")
            (Path(name) / file).write_bytes(gzip.decompress(packed.read_bytes()))
        yield Path(name)


def _read(run: Path) -> tuple[Results, list[Line]]:
    results = results_json.load((run / "results.json").read_bytes(), str(run))
    with (run / "requests.jsonl").open("rb") as lines:
        return results, list(requests_log.read(lines, str(run)))


def _small(name: str, content: bytes) -> bytes:
    """Without what no comparison needs: curves for pictures, folders, and more digits than a clock has."""
    if name == "requests.jsonl":
        return re.sub(rb"(\d+\.\d{5})\d+", rb"\1", content)
    results: dict[str, Any] = json.loads(content)
    results["about"]["arguments"].pop("out", None)
    for point in results["points"]:
        point["histograms"] = {}
        point["series"] = {"at_s": [], "in_flight": [], "output_tokens_per_s": []}
    return json.dumps(results).encode()
