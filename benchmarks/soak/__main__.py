"""`python -m benchmarks.soak`: exit 1 with the evidence if anything got stuck, leaked or ended wrongly."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from benchmarks.soak.chaos import Chaos, plan
from benchmarks.soak.clients import Client
from benchmarks.soak.cluster import IDLE, SLOTS, TOTAL, Emulator, GatewayProcess, complaints
from benchmarks.soak.crowds import Crowds
from benchmarks.soak.results import End, Results
from benchmarks.soak.verdict import comes_to_rest, judge_counts, judge_memory, judge_requests, outcomes
from benchmarks.soak.watch import Watch

#: seconds beyond the gateway's own limit for a whole request
MARGIN = 5.0
#: lines of evidence that are printed
SHOWN = 25


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--replicas", type=int, default=5)
    parser.add_argument("--clients", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1, help="of faults and clients; timing is the machine's own")
    parser.add_argument("--logs", type=Path, help="keep the processes' logs and the cluster file here")
    return parser.parse_args()


async def soak(arguments: argparse.Namespace, folder: Path) -> int:
    emulators = [Emulator(number, arguments.seed, folder) for number in range(arguments.replicas)]
    gateway: GatewayProcess | None = None
    try:
        for emulator in emulators:
            await emulator.ready()
        gateway = GatewayProcess(emulators, folder)
        await gateway.ready()
        return await _run(arguments, emulators, gateway)
    finally:
        if gateway is not None:
            gateway.child.stop()
        for emulator in emulators:
            emulator.stop()


async def _run(arguments: argparse.Namespace, emulators: list[Emulator], gateway: GatewayProcess) -> int:
    seconds = arguments.minutes * 60.0
    await asyncio.sleep(2.0)  # scraping has begun
    await gateway.state()  # the connection of this and all later looks is open
    files = gateway.files()
    results, watch = Results(), Watch(gateway)
    chaos = Chaos(emulators, plan(arguments.seed, len(emulators), seconds - 5.0))

    def client(number: int) -> Client:
        return Client(number, arguments.seed, gateway.port, results, deadline=TOTAL + MARGIN, idle=IDLE)

    clients = [client(number) for number in range(arguments.clients)]
    crowds = Crowds(arguments.seed, SLOTS * len(emulators), client)
    stopping = asyncio.Event()
    watching = asyncio.create_task(watch.run())
    running = [asyncio.create_task(one.run(stopping)) for one in clients]
    running.append(asyncio.create_task(crowds.run(stopping)))
    breaking = asyncio.create_task(chaos.run())
    began = time.monotonic()
    print(f"gateway {gateway.child.pid}, {len(emulators)} replicas, {len(clients)} clients, {seconds:.0f} s")
    while time.monotonic() - began < seconds:
        done, _ = await asyncio.wait([watching, breaking, *running], timeout=10.0, return_when=asyncio.FIRST_EXCEPTION)
        for task in done:
            task.result()  # none of them may fail
        if gateway.child.process.poll() is not None:
            raise RuntimeError(f"the gateway died with {gateway.child.process.returncode}:\n{gateway.child.log_tail()}")
        _progress(time.monotonic() - began, results, watch, chaos)
    stopping.set()
    await breaking
    late = asyncio.wait(running, timeout=TOTAL + 2 * MARGIN)
    _, stuck = await late
    left = await comes_to_rest(gateway, emulators, files, within=20.0)
    files_left = gateway.files()
    counted = outcomes(await gateway.metrics())
    watching.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await watching
    cpu = gateway.cpu_seconds()
    code = await gateway.stop()

    fine, violations = judge_requests(results, chaos, crowds, watch)
    violations += [f"client {index} is stuck" for index, task in enumerate(running) if task in stuck]
    violations += left + watch.violations + judge_counts(results, counted)
    growth, span, flat = judge_memory(watch, min(90.0, seconds / 3))
    violations += flat
    violations += [f"the gateway's log: {line}" for line in complaints(gateway.child)]
    violations += [f"emulator {one.number}'s log: {line}" for one in emulators for line in complaints(one.child)]
    if code:
        violations.append(f"the gateway's exit code is {code}")
    _table(results, counted, fine, chaos, watch)
    print(f"gateway: {cpu:.1f} s of processor time; {files} files before the load, {files_left} at the end")
    memory = [sample.memory_kib for sample in watch.samples]
    if arguments.logs is not None:
        rows = (
            f"{s.at - began:.1f},{s.memory_kib},{s.files},{s.in_flight},{s.held},{s.connections},{s.budget:.1f}"
            for s in watch.samples
        )
        (arguments.logs / "samples.csv").write_text(
            "\n".join(["s,kib,files,in_flight,held,connections,retries", *rows, ""])
        )
    print(f"memory: {memory[0]} KiB at the start, {max(memory)} at most, {memory[-1]} at the end; "
          f"{growth:+.0f} KiB a minute over the last {span:.0f} s")  # fmt: skip
    print(f"\n{len(violations)} violations" if violations else "\nno violation")
    for line in violations[:SHOWN]:
        print(f"  {line}")
    return 1 if violations else 0


def _progress(at: float, results: Results, watch: Watch, chaos: Chaos) -> None:
    ends = Counter[str]()
    for (_, end), count in results.counts.items():
        ends[end] += count
    last = watch.samples[-1]
    so_far = ", ".join(f"{count} {end}" for end, count in sorted(ends.items()))
    now = f"{last.in_flight} in flight, {last.held} held, {last.connections} connections"
    print(
        f"{at:4.0f} s  {results.total} requests ({so_far}), {chaos.done.total()} faults; now {now}, "
        f"{last.memory_kib} KiB, {last.files} files",
        flush=True,
    )


def _table(results: Results, counted: Counter[str], fine: Counter[str], chaos: Chaos, watch: Watch) -> None:
    print(f"\n{'request':<32}" + "".join(f"{end:>8}" for end in End))
    for what in sorted({what for what, _ in results.counts}):
        print(f"{what:<32}" + "".join(f"{results.counts[what, end] or '':>8}" for end in End))
    print("\ncounted by the gateway: " + ", ".join(f"{name} {count}" for name, count in sorted(counted.items())))
    print("sent: " + ", ".join(f"{name} {count}" for name, count in sorted(results.accepted.items())))
    print("faults: " + ", ".join(f"{kind} {count}" for kind, count in sorted(chaos.done.items())))
    print("failures that are legitimate:")
    for why, count in fine.most_common():
        print(f"  {count:5} {why}")
    print(f"most held at once: {max(sample.held for sample in watch.samples)}")
    print(f"pauses of this machine over 0.5 s: {len(watch.pauses)}; least retry budget: "
          f"{min(sample.budget for sample in watch.samples):.0f}")  # fmt: skip


def main() -> int:
    arguments = _arguments()
    if arguments.logs is not None:
        arguments.logs.mkdir(parents=True, exist_ok=True)
        return asyncio.run(soak(arguments, arguments.logs))
    with tempfile.TemporaryDirectory(prefix="kilocard-soak-") as folder:
        return asyncio.run(soak(arguments, Path(folder)))


if __name__ == "__main__":
    sys.exit(main())
