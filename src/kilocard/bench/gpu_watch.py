"""This machine's GPUs by one nvidia-smi process that goes on reporting, read on a thread of its own."""

from __future__ import annotations

import shutil
import subprocess
import threading
import time
from urllib.parse import urlsplit

from kilocard.bench.gpu_readings import NOTHING, SMI_QUERY, GpuReading, all_gpus, parse_smi

#: a reading older than this many periods says nothing of now
_PERIODS = 5
_LOCAL = {"localhost", "127.0.0.1", "::1"}


def is_local(url: str) -> bool:
    """Does the URL point to this machine? Only then are the GPUs here those of the server."""
    host = urlsplit(url).hostname or ""
    return host in _LOCAL or host.startswith("127.")


class GpuWatch:
    """`latest()` at any time between start() and stop(). Where nvidia-smi is missing or fails, it says nothing."""

    def __init__(self, period_s: float = 1.0, program: str = "nvidia-smi") -> None:
        self.period_s = period_s
        self._program = shutil.which(program)
        self._process: subprocess.Popen[str] | None = None
        self._readings: dict[int, tuple[float, GpuReading]] = {}

    def start(self) -> bool:
        """False where there is no nvidia-smi to ask."""
        if self._program is None:
            return False
        self._process = subprocess.Popen(
            [self._program, *SMI_QUERY, f"--loop-ms={max(100, round(1000 * self.period_s))}"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        threading.Thread(target=self._read, args=(self._process,), name="nvidia-smi", daemon=True).start()
        return True

    def latest(self) -> GpuReading:
        """All GPUs together, as last reported."""
        oldest = time.monotonic() - _PERIODS * self.period_s
        fresh = [reading for at, reading in tuple(self._readings.values()) if at >= oldest]
        return all_gpus(fresh) if fresh else NOTHING

    def stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(2.0)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()

    def _read(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        with process.stdout as lines:
            for line in lines:
                found = parse_smi(line)
                if found is not None:
                    index, reading = found
                    self._readings[index] = (time.monotonic(), reading)
