"""Whatever happens: the bounds hold, no request is sent to one that leaves, and no stream is cut within the grace."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from random import Random

import pytest
from controlled import World, cluster, run, with_range

from kilocard.backends.base import ACTIVE
from kilocard.core.errors import BackendError
from kilocard.dispatch import events as ev

GRACE = 30.0


class Story(World):
    """A world in which things happen, and that is looked at after each second."""

    def __init__(self, folder: Path, rng: Random) -> None:
        self.rng = rng
        self.least, self.most = rng.choice([(0, 3), (1, 3), (2, 4)])
        super().__init__(folder, cluster(self.least, self.most, gpus=rng.choice([0, 1])), gpus=3)
        #: what all replicas say of their queues, for some seconds
        self.waiting = 0.0
        #: when each that leaves began to
        self.left_at: dict[str, float] = {}

    async def one_second(self) -> None:
        rng = self.rng
        for _ in range(rng.choice([0, 0, 1, 6])):
            before = set(self.sent)
            request = self.arrive()
            if request in self.sent and request not in before:
                assert self.sent[request] not in self.controller.departures.under_way
        for request in [each for each in self.sent if rng.random() < 0.05]:
            self.finish(request)
        match rng.randrange(12):
            case 0:
                self.backend.fail_next("start", BackendError("no"))
            case 1 if self.ready():
                victim = rng.choice(self.ready())
                lost = [each for each, replica in self.sent.items() if replica == victim]
                self.backend.crash(victim, "boom")
                for request in lost:
                    del self.sent[request]
                    self.tell(ev.Failed(self.clock(), request, ev.Fault.RESET, None, ""))  # another one, or the end
            case 2:
                self.deaf = rng.random() < 0.5
            case 3:
                await self.end()
                self.controller = self.another()
            case 4:
                self.least = rng.randrange(3)
                self.most = self.least + 1 + rng.randrange(2)
                self.spec = with_range(self.spec, self.least, self.most)
                self.controller.adopt(self.spec)
        if rng.random() < 0.1:
            self.waiting = rng.choice([0, 0, 10, 40])
        await self.seconds(1, waiting=self.waiting if rng.random() < 0.9 else None)
        self.check()

    def check(self) -> None:
        states = {status.id: status for status in self.backend.replicas()}
        active = sum(status.state in ACTIVE for status in states.values())
        row = self.pool()
        assert active + len(row["pending"]) <= self.most, (active, row["pending"])
        leaving = self.controller.departures.under_way
        for replica in leaving:
            self.left_at.setdefault(replica, self.clock())
        for replica, count in Counter(self.sent.values()).items():
            alive = states[replica].state.value in ("ready", "draining")
            grace_over = self.clock() - self.left_at.get(replica, self.clock()) >= GRACE
            assert alive or grace_over, f"{replica} is {states[replica].state} with {count} requests"
        for replica in [each for each in self.left_at if each not in leaving]:
            del self.left_at[replica]
            for request in [each for each, where in self.sent.items() if where == replica]:
                del self.sent[request]  # the grace was over


@pytest.mark.parametrize("seed", range(6))
def test_any_story(tmp_path: Path, seed: int) -> None:
    async def body() -> None:
        story = Story(tmp_path, Random(seed))
        await story.backend.open()
        for _ in range(30):
            await story.one_second()
        # and when all is quiet, it is as the file says
        story.deaf = False
        for _ in range(30):
            for request in list(story.sent):
                story.finish(request)
            await story.seconds(1, waiting=0)
        assert len(story.ready()) == story.least, (story.states(), story.pool()["sentence"])
        assert set(story.controller.events.errors) <= {"start", "observe"}

    run(body())
