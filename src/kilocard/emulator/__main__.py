"""`python -m kilocard.emulator`: emulated engines without the command line's extras. `kilocard emulate` has help."""

from __future__ import annotations

import argparse
import sys

from kilocard.core.errors import KilocardError
from kilocard.emulator.serve import serve
from kilocard.emulator.settings import DEFAULT_MODEL, Settings
from kilocard.net.loop import run
from kilocard.perf.builtin import BUILTIN, SMALL_FAST, builtin


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m kilocard.emulator", description=__doc__)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8100, help="first of consecutive ports; 0: any free ones")
    parser.add_argument("--count", type=int, default=1)
    parser.add_argument("--model", action="append", help="name to serve; may be repeated")
    parser.add_argument("--profile", default=SMALL_FAST.name, choices=sorted(BUILTIN))
    parser.add_argument("--max-num-seqs", type=int)
    parser.add_argument("--max-num-batched-tokens", type=int)
    parser.add_argument("--kv-tokens", type=int)
    parser.add_argument("--max-model-len", type=int)
    parser.add_argument("--speed", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--metrics-bytes", type=int, default=0)
    a = parser.parse_args()
    try:
        settings = Settings(
            models=tuple(a.model or [DEFAULT_MODEL]),
            profile=builtin(a.profile),
            max_num_seqs=a.max_num_seqs,
            kv_tokens=a.kv_tokens,
            max_num_batched_tokens=a.max_num_batched_tokens,
            max_model_len=a.max_model_len,
            speed=a.speed,
            seed=a.seed,
            metrics_bytes=a.metrics_bytes,
        )
        run(serve(settings, host=a.host, port=a.port, count=a.count))
    except KilocardError as error:
        print(f"emulator: {error}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
