"""What the run prints."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from benchmarks.soak.chaos import Chaos
from benchmarks.soak.history import History
from benchmarks.soak.judgement import Findings
from benchmarks.soak.results import End, Results
from benchmarks.soak.watch import Watch

#: lines of evidence that are printed
SHOWN = 25


def progress(at: float, results: Results, watch: Watch, chaos: Chaos, history: History) -> None:
    ends = Counter[str]()
    for (_, end), count in results.counts.items():
        ends[end] += count
    last = watch.samples[-1]
    so_far = ", ".join(f"{count} {end}" for end, count in sorted(ends.items()))
    now = f"{last.in_flight} in flight, {last.held} held, {last.connections} connections"
    print(
        f"{at:4.0f} s  {results.total} requests ({so_far}), {chaos.done.total() + history.done.total()} faults; "
        f"now {now}, {last.kib} KiB, {last.files} files",
        flush=True,
    )


def _table(title: str, counts: Counter[tuple[str, End]]) -> None:
    print(f"\n{title:<32}" + "".join(f"{end:>9}" for end in End))
    for what in sorted({what for what, _ in counts}):
        print(f"{what:<32}" + "".join(f"{counts[what, end] or '':>9}" for end in End))


def _named(counts: Counter[str]) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(counts.items()))


def _line(title: str, parts: list[str]) -> None:
    print(f"{title}: {', '.join(parts)}")


def show(findings: Findings, cpu: float, began: float, folder: Path, violations: list[str]) -> None:
    """`cpu`: seconds of all processes of the gateway."""
    results, excuses = findings.results, findings.excuses
    watch = excuses.watch
    _table("request", results.counts)
    _table("tenant", results.by_tenant)
    print(f"\ncounted by the gateway: {_named(findings.counted)}; rows in the ledger: {findings.rows}")
    print(f"sent: {_named(Counter({str(name): count for name, count in results.accepted.items()}))}")
    print(f"faults: {_named(excuses.chaos.done + excuses.history.done)}")
    print("failures that are legitimate:")
    for why, count in findings.fine.most_common():
        print(f"  {count:5} {why}")
    killed = Counter(str(count) for count in findings.deaths.values())
    _line("poison", [f"{bodies} bodies killed {count} replicas" for count, bodies in sorted(killed.items())])
    _line("fullest moments", [f"{name} {one.used} of {one.limit}" for name, one in sorted(findings.peaks.items())])
    waited = [f"{name} {one.median:.2f} {one.p90:.2f} s" for name, one in sorted(findings.waited.items())]
    _line("waited while a crowd was there (median, p90)", waited)
    print(f"most held at once: {max(sample.held for sample in watch.samples)}")
    denied = watch.denied(0.0, float("inf"))
    print(f"pauses of this machine over 0.5 s: {len(watch.pauses)}; retries denied for want of budget: {denied}")
    for said in findings.replays:
        print(f"replay of {said}")
    seconds = watch.samples[-1].at - began
    print(f"gateway: {cpu:.1f} s of processor time in {seconds:.0f} s; {watch.samples[0].files} files at the start, "
          f"{watch.samples[-1].files} at the end")  # fmt: skip
    memory = [sample.kib for sample in watch.samples]
    print(f"memory: {memory[0]} KiB at the start, {max(memory)} at most, {memory[-1]} at the end")
    for one in findings.growths:
        if one.span > 60.0:
            print(f"  process {one.pid}: {one.rate:+.0f} KiB a minute over its last {one.span:.0f} s")
    samples = (
        f"{s.at - began:.1f},{s.kib},{s.files},{s.in_flight},{s.held},{s.connections},{s.denied}" for s in watch.samples
    )
    (folder / "samples.csv").write_text(
        "\n".join(["s,kib,files,in_flight,held,connections,retries_denied", *samples, ""])
    )
    (folder / "violations.txt").write_text("\n".join([*violations, ""]))
    print(f"\n{len(violations)} violations" if violations else "\nno violation")
    for line in violations[:SHOWN]:
        print(f"  {line}")
