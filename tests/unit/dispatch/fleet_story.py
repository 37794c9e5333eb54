"""A small language for stories on virtual time: who arrives, what the replicas do, what the dispatcher says."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Any

from kilocard.core.load import LoadSample
from kilocard.core.prefix import Prefix
from kilocard.dispatch import events as ev
from kilocard.dispatch.config import PoolFacts
from kilocard.dispatch.dispatcher import Dispatcher
from kilocard.dispatch.instructions import Instruction, Send
from kilocard.spec.model import ModelSpec

MODEL = ModelSpec("m", {"p": 1})
UNKNOWN = PoolFacts()


class Story:
    def __init__(
        self, *replicas: str, facts: PoolFacts = UNKNOWN, seed: int = 1, scrape_interval: float = 1.0, **spec: object
    ) -> None:
        self.model = replace(MODEL, **spec)  # type: ignore[arg-type]  # a test's own keywords
        pools = dict.fromkeys(self.model.pools, facts)
        self.dispatcher = Dispatcher({"m": self.model}, pools, Random(seed), scrape_interval=scrape_interval)
        self.now = 0.0
        self.count = 0
        #: everything said since the last `said()`
        self.heard: list[Instruction] = []
        self.up(*replicas)

    def tell(self, event: ev.Event) -> Sequence[Instruction]:
        answer = list(self.dispatcher.handle(event))
        self.heard += answer
        return answer

    def wait(self, seconds: float) -> list[Instruction]:
        """Time passes in ticks of 0.1 s."""
        out: list[Instruction] = []
        end = self.now + seconds
        while self.now < end - 1e-9:
            self.now = min(end, self.now + 0.1)
            out += self.tell(ev.Tick(self.now))
        return out

    def up(self, *replicas: str, pool: str = "p") -> Sequence[Instruction]:
        out: list[Instruction] = []
        for replica in replicas:
            out += self.tell(ev.ReplicaUp(self.now, replica, pool))
        return out

    def arrive(self, prompt: int = 100, output: int = 100, **more: Any) -> Instruction:
        answer = self.arrive_all(prompt, output, **more)
        assert len(answer) == 1
        return answer[0]

    def arrive_all(
        self,
        prompt: int = 100,
        output: int = 100,
        *,
        deadline: float = 1e6,
        model: str = "m",
        tenant: str = "",
        priority: int = 1,
        weight: float = 1.0,
        prefix: Prefix | None = None,
    ) -> Sequence[Instruction]:
        self.count += 1
        rest = (tenant, priority, weight)
        return self.tell(ev.Arrived(self.now, self.count, model, prompt, output, deadline, *rest, prefix=prefix))

    def send(self, prompt: int = 100, output: int = 100, prefix: Prefix | None = None) -> Send:
        answer = self.arrive(prompt, output, prefix=prefix)
        assert isinstance(answer, Send), answer
        return answer

    def finish(self, request: int, output: int | None = 10) -> Sequence[Instruction]:
        return self.tell(ev.Finished(self.now, request, 200, output))

    def fail(self, request: int, fault: ev.Fault, status: int | None = None) -> Sequence[Instruction]:
        return self.tell(ev.Failed(self.now, request, fault, status, ""))

    def scrape(
        self, replica: str, running: float | None, waiting: float | None, kv: float | None = None
    ) -> Sequence[Instruction]:
        return self.tell(ev.Scraped(self.now, replica, LoadSample(self.now, running, waiting, kv)))

    def state(self, replica: str) -> str:
        return {r["id"]: r["state"] for r in self.dispatcher.snapshot(self.now)["replicas"]}[replica]

    def in_flight(self, replica: str) -> int:
        return self.dispatcher.fleet.replicas[replica].in_flight


def spread(answers: Sequence[Instruction]) -> Counter[str]:
    return Counter(answer.replica for answer in answers if isinstance(answer, Send))
