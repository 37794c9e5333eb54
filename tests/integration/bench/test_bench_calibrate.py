"""From a server to its profile: `kilocard emulate`, `kilocard bench`, `kilocard calibrate`, as a user runs them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from bench_server import emulated
from measurement import measurement

from kilocard.perf.builtin import CPU_SMOL
from kilocard.perf.profile import Profile


def kilocard(*words: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "kilocard", *words]
    return subprocess.run(argv, capture_output=True, text=True, timeout=100)


@measurement
def test_the_speed_of_an_emulated_engine_is_found_from_outside(tmp_path: Path) -> None:
    folder = tmp_path / str(len(list(tmp_path.iterdir())))
    folder.mkdir()
    run, out = folder / "run", folder / "profile.yaml"
    with emulated("--profile", CPU_SMOL.name) as (url,):
        lengths = ["--input", "20-200", "--output", "20-40", "--duration", "5s", "--no-single"]
        kilocard("bench", url, "--sweep", "1,4", *lengths, "--no-stop-early", "--out", str(run))
    document = json.loads((run / "results.json").read_text())
    room = ["--kv-tokens", "46592", "--max-num-seqs", "8"]
    done = kilocard("calibrate", str(run), "--out", str(out), *room)
    limited = all(point["client"]["limited"] for point in document["points"])
    if limited:  # others took this machine's processor: it says so, and can be told to go on
        assert done.returncode == 2
        assert "the load tester was the limit" in done.stderr
        done = kilocard("calibrate", str(run), "--out", str(out), *room, "--even-limited")
    assert done.returncode == 0, done.stderr
    profile = Profile.from_mapping(yaml.safe_load(out.read_text()))
    assert profile.engine_version or profile.engine
    # A step of four sequences with 120 tokens each, and one that prefills 200.
    for what in ((0, 4, 480, 0), (200, 1, 320, 0)):
        assert profile.step_s(*what) == pytest.approx(CPU_SMOL.step_s(*what), rel=0.25 if limited else 0.1), what
