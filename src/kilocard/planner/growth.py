"""How a cluster grows: a first one of at most eight replicas, then by what was measured."""

from __future__ import annotations

from dataclasses import dataclass

#: gateway, queue metrics, health checks and arguments are got right with so many; more only make it harder to see
FIRST = 8


@dataclass(frozen=True, slots=True)
class Step:
    replicas: int
    #: peak requests a second that they carry
    up_to_rate_per_s: float
    when: str


def growth(replicas: int, rate_each: float) -> tuple[Step, ...]:
    """`rate_each`: requests a second that one replica is given at the peak. The last step is beyond today's need."""
    steps: list[Step] = []
    count = min(replicas, FIRST)
    first = "now" if count == replicas else f"now: run {count} until they are full, and measure"
    steps.append(Step(count, count * rate_each, first))
    while count < replicas:
        count = min(replicas, max(count + 2, count + count // 2))
        steps.append(
            Step(
                count, count * rate_each, "when waiting stays above 0 at the daily peak and each replica does its rate"
            )
        )
    beyond = count + max(1, count // 4)
    steps.append(Step(beyond, beyond * rate_each, f"when the peak passes {count * rate_each:,.3g} requests/s"))
    return tuple(steps)
