"""The load that each client is given, the same for all; and the form in which each says what it saw.

Runs in the peers' own environments too: standard library only.
"""

from __future__ import annotations

import gc
import json
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Load:
    url: str
    #: at once, in a closed loop
    streams: int
    requests: int
    chunks: int
    gap_s: float
    #: all streams get their tokens at once, as an engine's steps end
    beat: bool
    #: seconds from the start over which the first request of each stream begins
    ramp_s: float

    def body(self, number: int) -> bytes:
        script = {
            "id": str(number),
            "chunks": self.chunks,
            "first_s": self.gap_s,
            "gap_s": self.gap_s,
            "spread": 0.0 if self.beat else 0.5,
            "seed": number,
            "beat": self.beat,
            "token_bytes": 4,
            "fault": None,
        }
        messages = [{"role": "user", "content": "x" * 400}]
        asked = {"model": "m", "messages": messages, "max_tokens": self.chunks, "stream": True, "script": script}
        return json.dumps(asked).encode()


#: of one request: id, when it should have been sent, when each token came; time.monotonic_ns()
Seen = tuple[str, int, list[int]]


def main(measure: Callable[[Load], tuple[list[Seen], dict[str, Any]]]) -> None:
    """`program LOAD OUT`: run, and write what was seen and what it cost."""
    load = Load(**json.loads(sys.argv[1]))
    gc.collect()
    gc.freeze()
    cpu_s, wall_ns = time.process_time(), time.monotonic_ns()
    seen, more = measure(load)
    cpu_s, wall_s = time.process_time() - cpu_s, (time.monotonic_ns() - wall_ns) * 1e-9
    with open(sys.argv[2], "w") as out:
        json.dump({"seen": seen, "cpu_s": cpu_s, "wall_s": wall_s, **more}, out)
