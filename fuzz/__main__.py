"""`python -m fuzz TARGET …`: see fuzz/__init__.py. Exit 0: nothing found; 1: something; 2: usage."""

from __future__ import annotations

import argparse
import hashlib
import importlib
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from fuzz.targets import TARGETS

FOUND = Path(__file__).parent / "found"
#: seconds that one input may take, and MiB that a target may hold, before it counts as found
_HANG, _MEMORY = 5, 1024
#: longer inputs are rarely newer ones
_LONGEST = 1024


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m fuzz", description="Throw odd bytes at what reads others' bytes.")
    parser.add_argument("target", nargs="?", choices=[*TARGETS, "all"], metavar="TARGET", help="or: all")
    parser.add_argument("--list", action="store_true", help="the targets and what they read")
    parser.add_argument("--runs", type=int, default=0, help="inputs (of each target)")
    parser.add_argument("--seconds", type=int, default=0, help="time (of each target)")
    parser.add_argument("--seed", type=int, default=0, help="the same inputs each time; 0: others each time")
    parser.add_argument("--seeds", action="store_true", help="only what each target begins with; needs no atheris")
    parser.add_argument("--input", type=Path, help="run one input, as it was found")
    given = parser.parse_args()
    if given.list or given.target is None:
        for name, what in TARGETS.items():
            print(f"{name:12}{what}")
        return 0 if given.list else 2
    if given.target == "all":
        return _all(given)
    if given.input is not None:
        _target(given.target).check(given.input.read_bytes())
        return 0
    if given.seeds:
        target = _target(given.target)
        for seed in target.SEEDS:
            target.check(seed)
        return 0
    if not (given.runs or given.seconds):
        parser.error("say how long: --runs or --seconds")
    _fuzz(given)
    return 0


def _target(name: str) -> Any:
    return importlib.import_module(f"fuzz.targets.{name}")


def _fuzz(given: argparse.Namespace) -> None:
    """Never comes back: libFuzzer ends the process."""
    import atheris

    with atheris.instrument_imports(include=["kilocard"]):
        target = _target(given.target)
    FOUND.mkdir(exist_ok=True)
    corpus = Path(tempfile.mkdtemp(prefix="fuzz-"))
    for seed in target.SEEDS:
        (corpus / hashlib.sha256(seed).hexdigest()[:16]).write_bytes(seed)
        target.check(seed)
    argv = [
        sys.argv[0], str(corpus), f"-artifact_prefix={FOUND}/{given.target}-", f"-timeout={_HANG}",
        f"-rss_limit_mb={_MEMORY}", f"-max_len={_LONGEST}", "-print_final_stats=1", "-verbosity=0",
    ]  # fmt: skip
    argv += [f"-runs={given.runs}"] * bool(given.runs) + [f"-max_total_time={given.seconds}"] * bool(given.seconds)
    argv += [f"-seed={given.seed}"] * bool(given.seed)
    atheris.Setup(argv, target.check)
    atheris.Fuzz()


def _all(given: argparse.Namespace) -> int:
    """Each target in a process of its own; a line for each."""
    bad = inputs = 0
    for name in TARGETS:
        started = time.monotonic()
        command = [sys.executable, "-m", "fuzz", name, f"--runs={given.runs}", f"--seconds={given.seconds}"]
        ended = subprocess.run(
            [*command, f"--seed={given.seed}"], stderr=subprocess.STDOUT, stdout=subprocess.PIPE, check=False
        )
        said = ended.stdout.decode("utf-8", "replace")
        units = re.search(r"number_of_executed_units: (\d+)", said)
        count = int(units[1]) if units else 0
        inputs += count
        verdict = "FOUND" if ended.returncode else "fine"
        print(f"{name:12}{count:>10} inputs  {time.monotonic() - started:6.1f} s  {verdict}", flush=True)
        if ended.returncode:
            bad += 1
            print(said[-6000:])
    print(f"{'in all':12}{inputs:>10} inputs, {bad} of {len(TARGETS)} targets have found something")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
