"""A fleet on virtual time whose replicas die of poison: requests, clients that send again, deaths, restarts."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from heapq import heappop, heappush
from random import Random

from kilocard.core.errors import KilocardError
from kilocard.dispatch import events as ev
from kilocard.dispatch.config import PoolFacts
from kilocard.dispatch.dispatcher import Dispatcher
from kilocard.dispatch.events import Fault
from kilocard.dispatch.instructions import Convicted, Instruction, Probe, Refuse, Send
from kilocard.spec.model import ModelSpec

#: seconds from the poison's arrival on a replica to the replica's end; to the first content of others, and their end
KILLS_AFTER, FIRST, WHOLE = 0.03, 0.2, 0.5


@dataclass
class Client:
    """Sends its body again as soon as it has an answer; `body` makes a new one each time where it is None."""

    body: str | None = None
    answers: list[KilocardError | None] = field(default_factory=list)


@dataclass
class Asked:
    client: Client
    body: str
    replica: str = ""
    life: int = 0
    attempt: int = 0
    content: bool = False


def fingerprint(body: str) -> str:
    return f"{len(body):x}-{body}"


class MortalFleet:
    """`mid_stream`: the poison kills after its first content. `restart`: seconds after which a dead one is back."""

    def __init__(
        self,
        replicas: int,
        seed: int,
        *,
        restart: float | None = None,
        mid_stream: bool = False,
        exits_late: float = 0.0,
        health_lies: bool = False,
        facts: PoolFacts = PoolFacts(),  # noqa: B008  # a constant
        **spec: object,
    ) -> None:
        self.rng = Random(seed)
        model = ModelSpec("m", {"p": 1}, **spec)  # type: ignore[arg-type]  # a test's own keywords
        self.dispatcher = Dispatcher({"m": model}, {"p": facts}, Random(seed))
        self.now = 0.0
        self.restart = restart
        self.mid_stream = mid_stream
        self.exits_late = exits_late
        self.health_lies = health_lies
        #: replica: its life's number while it lives; and those that answer 500 until they exit
        self.lives: dict[str, int | None] = {f"r{number}": 0 for number in range(replicas)}
        self.sick: set[str] = set()
        self.deaths: list[str] = []
        self.convicted: list[str] = []
        self.asked: dict[int, Asked] = {}
        #: codes of those who had seen content, and of those who had not
        self.broken: Counter[str] = Counter()
        self.lost: Counter[str] = Counter()
        self._numbers = itertools.count(1)
        self._bodies = itertools.count(1)
        self._later: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        for replica in self.lives:
            self.tell(ev.ReplicaUp(0.0, replica, "p"))
        self.after(0.1, self._tick)

    def after(self, seconds: float, do: Callable[[], None]) -> None:
        heappush(self._later, (self.now + seconds, next(self._order), do))

    def run(self, seconds: float) -> None:
        end = self.now + seconds
        while self._later and self._later[0][0] <= end:
            self.now, _, do = heappop(self._later)
            do()
        self.now = end

    def _tick(self) -> None:
        self.tell(ev.Tick(self.now))
        self.after(0.1, self._tick)

    # --- clients

    def send(self, client: Client) -> None:
        number = next(self._numbers)
        body = client.body or f"innocent{next(self._bodies):05}"
        self.asked[number] = Asked(client, body)
        marked = fingerprint(body) if len(body) in self.dispatcher.quarantine.sizes else ""
        self.tell(ev.Arrived(self.now, number, "m", 100, 100, self.now + 600, fingerprint=marked))

    def answer(self, number: int, error: KilocardError | None, again: float) -> None:
        asked = self.asked.pop(number)
        client = asked.client
        client.answers.append(error)
        if error is not None and client.body is None:
            (self.broken if asked.content else self.lost)[error.code] += 1
        self.after(again, lambda: self.send(client))

    # --- the dispatcher

    def tell(self, event: ev.Event) -> None:
        for instruction in self.dispatcher.handle(event):
            self.obey(instruction)

    def obey(self, instruction: Instruction) -> None:
        match instruction:
            case Send(request, attempt, replica):
                asked = self.asked[request]
                asked.replica, asked.attempt, asked.content = replica, attempt, False
                life = self.lives[replica]
                if life is None:
                    self.after(0.001, lambda: self.fail(request, attempt, Fault.CONNECT))
                    return
                asked.life = life
                if replica in self.sick:
                    self.after(0.001, lambda: self.fail(request, attempt, Fault.STATUS))
                elif asked.body == "poison" and not self.mid_stream:
                    self.after(KILLS_AFTER, lambda: self.kill(replica, life))
                else:
                    self.after(FIRST * self.rng.uniform(0.5, 1.5), lambda: self.first(request, attempt))
            case Refuse(request, error):
                self.answer(request, error, 0.02)
            case Probe(replica):
                self.after(0.002, lambda: self.tell(ev.Probed(self.now, replica, self.healthy(replica))))
            case Convicted(_, marked):
                self.convicted.append(marked)

    def _there(self, request: int, attempt: int) -> Asked | None:
        asked = self.asked.get(request)
        return asked if asked is not None and asked.attempt == attempt else None

    def first(self, request: int, attempt: int) -> None:
        asked = self._there(request, attempt)
        if asked is None or self.lives[asked.replica] != asked.life:
            return
        asked.content = True
        self.tell(ev.FirstContent(self.now, request))
        if asked.body == "poison":
            self.after(KILLS_AFTER, lambda: self.kill(asked.replica, asked.life))
        else:
            self.after(WHOLE - FIRST, lambda: self.finish(request, attempt))

    def finish(self, request: int, attempt: int) -> None:
        asked = self._there(request, attempt)
        if asked is not None and self.lives[asked.replica] == asked.life:
            self.tell(ev.Finished(self.now, request, 200, 10))
            self.answer(request, None, 0.0)

    def fail(self, request: int, attempt: int, fault: Fault) -> None:
        asked = self._there(request, attempt)
        if asked is None:
            return
        marked = "" if fault is Fault.CONNECT else fingerprint(asked.body)
        status = 500 if fault is Fault.STATUS else None
        self.tell(ev.Failed(self.now, request, fault, status, "", marked))

    # --- replicas

    def healthy(self, replica: str) -> bool:
        return self.lives[replica] is not None and (self.health_lies or replica not in self.sick)

    def kill(self, replica: str, life: int | None = None) -> None:
        """Everything on it fails, in any order; connections are refused from now on, or from `exits_late` on."""
        if self.lives[replica] is None or replica in self.sick or (life is not None and self.lives[replica] != life):
            return
        self.deaths.append(replica)
        before = self.lives[replica]
        there = [number for number, asked in self.asked.items() if asked.replica == replica and asked.life == before]
        self.rng.shuffle(there)

        def exits() -> None:
            self.sick.discard(replica)
            self.lives[replica] = None
            if self.restart is not None:
                self.after(self.restart, lambda: self.lives.__setitem__(replica, (before or 0) + 1))

        fault = Fault.RESET
        if self.exits_late:
            fault = Fault.STATUS
            self.sick.add(replica)
            self.after(self.exits_late, exits)
        else:
            exits()
        for number in there:
            asked = self.asked.get(number)
            if asked is not None and asked.replica == replica and asked.life == before:
                self.fail(number, asked.attempt, fault)
