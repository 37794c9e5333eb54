"""Engine log lines → plain words for the user who waits for a replica. Tables; the first pattern that fits wins."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

#: pattern → words; `{0}`, `{1}` … are its groups
Hint = tuple[re.Pattern[str], str]


def hint(pattern: str, words: str) -> Hint:
    return re.compile(pattern, re.IGNORECASE), words


def reader(*tables: Sequence[Hint]) -> Callable[[str], str | None]:
    """A function that puts a log line in plain words, or gives None where the line says nothing of start-up."""
    rows = [row for table in tables for row in table]

    def read(line: str) -> str | None:
        # progress bars redraw themselves with "\r": the last state is the one that counts
        line = line.rstrip("\r\n").rpartition("\r")[2]
        for pattern, words in rows:
            match = pattern.search(line)
            if match:
                return words.format(*(group or "" for group in match.groups()))
        return None

    return read


#: any engine: Python, CUDA, uvicorn, the model hub
FAILURES: tuple[Hint, ...] = (
    hint(r"CUDA out of memory|OutOfMemoryError|cudaMalloc failed: out of memory", "GPU memory ran out"),
    hint(r"address already in use", "its port is in use by another program"),
    hint(r"No space left on device", "no space left on the disk"),
    hint(
        r"gated repo|GatedRepoError",
        "the hub lets only signed-in users have this model: set HF_TOKEN in the pool's env",
    ),
    hint(
        r"Repository Not Found|RepositoryNotFoundError|is not a valid model identifier|is not a local folder",
        "model not found: check the pool's `model` (hub name or folder)",
    ),
    hint(r"unrecognized arguments?: (.+)", "the engine does not know these args: {0}"),
    hint(r"error: (?:the following arguments are required|argument) (.+)", "wrong args: {0}"),
    hint(r"No module named '?([\w.]+)'?", "Python package missing: {0}"),
    hint(
        r"NVIDIA driver on your system is too old|CUDA driver version is insufficient", "the NVIDIA driver is too old"
    ),
    hint(r"No CUDA GPUs are available|no CUDA-capable device is detected", "no GPU is visible to it"),
    hint(r"NCCL error|ncclSystemError|ncclUnhandledCudaError", "its GPUs can't talk to one another (NCCL error)"),
)

#: any engine that serves with uvicorn
UVICORN: tuple[Hint, ...] = (
    hint(r"Application startup complete|Uvicorn running on", "server is up"),
    hint(r"Started server process", "server starts"),
)
