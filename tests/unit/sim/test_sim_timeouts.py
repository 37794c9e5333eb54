"""Time-outs are found on the second after their limit, though nobody looks while none can be due."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from small_cluster import arrivals, played, scenario

from kilocard.dispatch.events import Abandoned, Event, Failed, Fault, Finished, FirstContent, Tick
from kilocard.dispatch.instructions import Instruction, Refuse, Send
from kilocard.spec.model import Timeouts


class Watch:
    """Follows one gateway, and holds each time-out against the limits."""

    def __init__(self, timeouts: Timeouts) -> None:
        self.timeouts = timeouts
        self.sent: dict[int, float] = {}
        self.waits: dict[int, float] = {}
        self.found = 0
        self.next_look = 1.0

    def __call__(self, event: Event, answer: Sequence[Instruction]) -> None:
        now = event.now
        if isinstance(event, Failed) and event.fault is Fault.FIRST_TOKEN:
            self.found += 1
            limit = self.waits.pop(event.request) + self.timeouts.first_token
            assert limit <= now < limit + 1.2  # looks are a second apart, and ticks a tenth
        elif isinstance(event, Tick) and now >= self.next_look:
            self.next_look += 1.0
            # the gateway has looked just before this tick: nobody is left who was late by then
            assert all(now < since + self.timeouts.first_token for since in self.waits.values())
        elif isinstance(event, FirstContent | Finished | Abandoned | Failed):
            self.waits.pop(event.request, None)
        for instruction in answer:
            if isinstance(instruction, Send):
                self.waits[instruction.request] = now
            elif isinstance(instruction, Refuse):
                self.waits.pop(instruction.request, None)


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(st.tuples(st.integers(0, 2), st.floats(0.5, 12), st.floats(0.5, 9)), min_size=1, max_size=4),
    st.floats(2.1, 6.0),
    st.floats(5, 60),
    st.integers(0, 99),
)
def test_a_late_first_token_is_found_within_a_second(
    hangs: list[tuple[int, float, float]], limit: float, rate: float, seed: int
) -> None:
    timeouts = Timeouts(first_token=limit, first_token_per_prompt_token=0.0, idle=7.0, total=30.0)
    faults = [f"hang p-{replica} at={at} for={length}" for replica, at, length in hangs]
    watch = Watch(timeouts)
    played(scenario(3, faults=faults, timeouts=timeouts, seed=seed), arrivals(rate, 200, seed=seed), records=[watch])


def test_there_are_late_first_tokens_where_a_replica_hangs() -> None:
    timeouts = Timeouts(first_token=3.0, first_token_per_prompt_token=0.0, idle=7.0, total=30.0)
    watch = Watch(timeouts)
    played(scenario(2, faults=["hang p-0 at=4.25"], timeouts=timeouts), arrivals(20, 300), records=[watch])
    assert watch.found > 0
