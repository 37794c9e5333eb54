"""`python -m benchmarks.soak`: exit 1 with the evidence if anything got stuck, leaked, ended or was counted wrongly."""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from pathlib import Path

from benchmarks.soak.run import Options, soak


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--replicas", type=int, default=5, help="that suffer; four more don't, or only of poison")
    parser.add_argument("--clients", type=int, default=None, help="in a closed loop: 40, with --rate 10")
    parser.add_argument("--rate", type=float, default=0.0, help="also so many short requests a second, whoever waits")
    parser.add_argument("--workers", type=int, default=1, help="of the gateway; one is killed now and then")
    parser.add_argument("--tls", action="store_true", help="clients speak TLS; certificates are replaced")
    parser.add_argument("--redis", action="store_true", help="limits in a redis-server that is killed now and then")
    parser.add_argument("--seed", type=int, default=1, help="of faults and clients; timing is the machine's own")
    parser.add_argument("--logs", type=Path, help="keep all that the processes write, and samples.csv, in this folder")
    return parser.parse_args()


def main() -> int:
    a = _arguments()
    clients = a.clients if a.clients is not None else (10 if a.rate else 40)
    options = Options(a.minutes * 60.0, a.replicas, clients, a.rate, a.workers, a.tls, a.redis, a.seed)
    if a.logs is not None:
        a.logs.mkdir(parents=True, exist_ok=True)
        if any(a.logs.iterdir()):
            print(f"{a.logs} is not empty: this run's books would be mixed with another's", file=sys.stderr)
            return 2
        return asyncio.run(soak(options, a.logs))
    with tempfile.TemporaryDirectory(prefix="kilocard-soak-") as folder:
        return asyncio.run(soak(options, Path(folder)))


if __name__ == "__main__":
    sys.exit(main())
