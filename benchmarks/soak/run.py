"""One run: start everything, let it suffer, stop it, judge."""

from __future__ import annotations

import asyncio
import contextlib
import time
from dataclasses import dataclass
from pathlib import Path

from benchmarks.gateway.children import free_port
from benchmarks.soak.arrivals import Arrivals
from benchmarks.soak.asking import Door
from benchmarks.soak.at_rest import comes_to_rest
from benchmarks.soak.cast import FLOOD, FRAGILE, MODEL, Tenant, cast, casting
from benchmarks.soak.certificates import Certificates
from benchmarks.soak.chaos import Chaos, plan
from benchmarks.soak.clients import Client
from benchmarks.soak.cluster import Emulator, GatewayProcess, complaints, cpu_seconds, open_files
from benchmarks.soak.crowds import Crowds
from benchmarks.soak.files import SLOTS, TOTAL, Layout
from benchmarks.soak.history import History
from benchmarks.soak.judgement import Findings, judge
from benchmarks.soak.keys import Keys
from benchmarks.soak.locks import Locks
from benchmarks.soak.poison import Poison
from benchmarks.soak.redis import Redis
from benchmarks.soak.reloads import InForce, Reloads
from benchmarks.soak.report import progress, show
from benchmarks.soak.results import Results
from benchmarks.soak.verdict import Excuses, outcomes
from benchmarks.soak.watch import Watch
from benchmarks.soak.worker_kills import WorkerKills

#: seconds beyond the gateway's own limit for a whole request
MARGIN = 5.0
#: requests a second of the plain run, by which limits are made
PLAIN = 60.0


@dataclass(frozen=True)
class Options:
    seconds: float
    replicas: int
    clients: int
    #: requests a second in an open loop; 0: none
    rate: float
    workers: int
    tls: bool
    redis: bool
    seed: int


class Engines:
    """Those that suffer, the exclusive one, and those that die of poison."""

    def __init__(self, replicas: int, seed: int, folder: Path) -> None:
        self.suffering = [Emulator(str(n), MODEL, seed + n, folder) for n in range(replicas)]
        self.own = Emulator("own", MODEL, seed + 50, folder)
        mortal = "benchmarks.soak.engine"
        self.fragile = [Emulator(f"fragile-{n}", FRAGILE, seed + 60 + n, folder, mortal) for n in range(3)]

    @property
    def all(self) -> list[Emulator]:
        return [*self.suffering, self.own, *self.fragile]


async def soak(options: Options, folder: Path) -> int:
    """The exit code."""
    engines = Engines(options.replicas, options.seed, folder)
    gateway: GatewayProcess | None = None
    redis: Redis | None = None
    try:
        for emulator in engines.all:
            await emulator.ready()
        if options.redis:
            redis = Redis(folder, options.seed)
            await redis.ready()
        certificates = Certificates(folder, options.seed) if options.tls else None
        gateway = GatewayProcess(
            Layout(
                folder, free_port(), free_port(),
                suffering=[one.url for one in engines.suffering], own=[engines.own.url],
                fragile=[one.url for one in engines.fragile],
                tenants=cast(1.0 + options.rate / PLAIN),
                tls=(certificates.certificate, certificates.key) if certificates is not None else None,
                limit_store=redis.url if redis is not None else None,
                workers=options.workers,
            )
        )  # fmt: skip
        await gateway.ready()
        return await _run(options, engines, gateway, redis, certificates)
    finally:
        if gateway is not None:
            gateway.child.stop()
        if redis is not None:
            redis.stop()
        for emulator in engines.all:
            emulator.stop()


async def _run(
    options: Options, engines: Engines, gateway: GatewayProcess, redis: Redis | None, certificates: Certificates | None
) -> int:
    layout, seed = gateway.layout, options.seed
    tenants = layout.tenants
    await asyncio.sleep(2.0)  # scraping has begun
    await gateway.state()  # the connection of this and all later looks is open
    files = open_files(gateway.pids())
    utc = time.time() - time.monotonic()  # noqa: TID251  # the ledger has dates
    results, watch, history = Results(layout.folder / "sent.tsv", utc), Watch(gateway), History()
    door = Door(gateway.port, TOTAL + MARGIN, certificates.client if certificates is not None else None)

    def client(number: int, tenant: Tenant) -> Client:
        return Client(number, tenant, seed, door, results)

    chaos = Chaos(engines.suffering, plan(seed, len(engines.suffering), options.seconds - 5.0))
    crowds = Crowds(seed, SLOTS * len(engines.suffering), lambda number: client(number, tenants[FLOOD]))
    in_force = InForce(tenants)
    store = asyncio.Lock()
    poison = Poison(client(900_001, tenants["tester"]), engines.fragile, history, seed)
    arrivals = Arrivals(options.rate, tenants, seed, client) if options.rate else None
    keys = Keys(layout, client(900_002, tenants["free"]), history, store)
    stopping = asyncio.Event()
    doing = [client(number, tenant).run(stopping) for number, tenant in enumerate(casting(tenants, options.clients))]
    doing += [
        crowds.run(stopping),
        Reloads(gateway, in_force, history, seed).run(stopping),
        keys.run(stopping),
        Locks(layout.store, history, store, seed).run(stopping),
        poison.run(stopping),
    ]
    if arrivals is not None:
        doing.append(arrivals.run(stopping))
    if redis is not None:
        doing.append(redis.run(history, stopping))
    if certificates is not None:
        doing.append(certificates.run(gateway.port, history, stopping, rubbish=options.workers == 1))
    if options.workers > 1:
        doing.append(WorkerKills(gateway, history, seed).run(stopping))
    running = [asyncio.create_task(one) for one in doing]
    watching = asyncio.create_task(watch.run())
    breaking = asyncio.create_task(chaos.run())
    began = time.monotonic()
    print(f"gateway {gateway.child.pid}, {len(engines.all)} replicas, {options}", flush=True)
    while (at := time.monotonic() - began) < options.seconds:
        done, _ = await asyncio.wait(
            [watching, breaking, *running], timeout=min(10.0, options.seconds - at), return_when=asyncio.FIRST_EXCEPTION
        )
        for task in done:
            task.result()  # none of them may fail
        if gateway.child.process.poll() is not None:
            raise RuntimeError(f"the gateway died with {gateway.child.process.returncode}:\n{gateway.child.log_tail()}")
        progress(time.monotonic() - began, results, watch, chaos, history)
    stopping.set()
    await breaking
    ended, stuck = await asyncio.wait(running, timeout=TOTAL + 2 * MARGIN)
    for task in ended:
        task.result()
    left = [f"{len(stuck)} of the clients are stuck"] if stuck else []
    left += await comes_to_rest(gateway, engines.all, files, within=20.0)
    counted = outcomes(page := await gateway.metrics())
    (layout.folder / "metrics.txt").write_text(page)
    watching.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await watching
    cpu = cpu_seconds(gateway.pids())
    code = await gateway.stop()
    if code:
        left.append(f"the gateway's exit code is {code}")
    for child in [gateway.child, *(emulator.child for emulator in engines.all)]:
        left += [f"{child.log.name}: {line}" for line in complaints(child)]

    excuses = Excuses(chaos, crowds, history, watch, tenants, options.workers)
    findings = Findings(results, excuses, poison.deaths, in_force, keys.made, counted, utc)
    violations = left + watch.violations + history.violations
    violations += await judge(findings, layout, options.seconds / 2)
    if arrivals is not None:
        print(f"\n{arrivals.sent / options.seconds:.0f} requests a second were sent at random moments, "
              f"{arrivals.kept_back} kept back")  # fmt: skip
    show(findings, cpu, began, layout.folder, violations)
    return 1 if violations else 0
