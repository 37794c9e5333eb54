"""The keys of `scaling`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from kilocard.spec.kinds import (
    DURATION,
    FROM_ENVIRONMENT,
    SOME_SHARE,
    SOME_TIME,
    At,
    Choice,
    Number,
    Schema,
    Text,
    Whole,
)
from kilocard.spec.scaling import DAY, ObjectiveSpec, ScaleStep, ScalingSpec, ScheduleSpec
from kilocard.spec.sections import Key, Named, Section
from kilocard.spec.units import UnitError, show
from kilocard.spec.vocabulary import MOST_REPLICAS, SCALING_POLICIES, SIGNALS

WEEKDAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")


@dataclass(frozen=True, slots=True)
class Days:
    """`mon-fri`, `sat, sun`, `fri-mon`."""

    label: str = "days"

    def read(self, value: object, at: At) -> tuple[int, ...]:
        advice = "write days such as mon-fri or sat,sun (mon tue wed thu fri sat sun)"
        found: set[int] = set()
        for part in Text(advice=advice).read(value, at).lower().split(","):
            first, dash, last = (word.strip() for word in part.partition("-"))
            if first not in WEEKDAYS or (dash and last not in WEEKDAYS):
                raise UnitError(f"is {show(value)}", advice)
            start = WEEKDAYS.index(first)
            count = (WEEKDAYS.index(last) - start) % 7 if dash else 0
            found.update((start + day) % 7 for day in range(count + 1))
        return tuple(sorted(found))

    def dump(self, value: Any) -> object:
        return ",".join(WEEKDAYS[day] for day in value)

    def schema(self, definitions: dict[str, Schema]) -> Schema:
        day = f"(?:{'|'.join(WEEKDAYS)})"
        span = rf"\s*{day}(?:\s*-\s*{day})?\s*"
        return {"anyOf": [{"type": "string", "pattern": f"^{span}(?:,{span})*$"}, FROM_ENVIRONMENT]}


@dataclass(frozen=True, slots=True)
class TimeOfDay:
    """`08:30`, as minutes since midnight; `24:00` is the day's end."""

    label: str = "time of day"

    def read(self, value: object, at: At) -> int:
        advice = "write hours and minutes, e.g. 08:30; the end of the day is 24:00"
        match = re.fullmatch(r"([0-9]{1,2}):([0-5][0-9])", Text(advice=advice).read(value, at), re.ASCII)
        minutes = int(match[1]) * 60 + int(match[2]) if match else DAY + 1
        if minutes > DAY:
            raise UnitError(f"is {show(value)}", advice)
        return minutes

    def dump(self, value: Any) -> object:
        return f"{value // 60:02d}:{value % 60:02d}"

    def schema(self, definitions: dict[str, Schema]) -> Schema:
        return {
            "anyOf": [
                {"type": "string", "pattern": "^(?:[0-9]|[01][0-9]|2[0-3]):[0-5][0-9]$|^24:00$"},
                FROM_ENVIRONMENT,
            ]
        }


def _scale_step(bound: str, blank: ScaleStep, title: str, doc: str, bound_doc: str) -> Section:
    return Section(
        blank,
        doc,
        (
            Key(bound, Number(), bound_doc, field="threshold"),
            Key("for", DURATION, "For at least this long without a break.", field="for_seconds"),
            Key("step", Whole(1, MOST_REPLICAS), "Replicas at a time."),
        ),
        title,
    )


OBJECTIVE = Section(
    ObjectiveSpec(),
    "What `policy: target` holds.",
    (
        Key("ttft", SOME_TIME, "Time to the first token, from arrival at the gateway."),
        Key("share", SOME_SHARE, "Of the requests, at least this share."),
    ),
    "Objective",
)

SCHEDULE = Section(
    ScheduleSpec(name=""),
    "Other bounds at some hours of some days, e.g. more replicas before the working day begins. Where several hold, "
    "the highest `min` and the lowest `max` count.",
    (
        Key("days", Days(), "On these days; one that runs past midnight belongs to the day on which it begins.",
            default="every day"),
        Key("from", TimeOfDay(), "From this time on.", field="start"),
        Key("to", TimeOfDay(), "Until this time; not after `from`: on the next day.", field="end"),
        Key("zone", Text(pattern=r"[A-Za-z][A-Za-z0-9_+-]*(?:/[A-Za-z0-9_+-]+)*",
                         advice="write a name such as Europe/Berlin or UTC"), "Time zone, as in Asia/Shanghai."),
        Key("min", Whole(0, MOST_REPLICAS), "Fewest replicas.", default="`replicas.min`"),
        Key("max", Whole(1, MOST_REPLICAS), "Most replicas.", default="`replicas.max`"),
    ),
    "Schedule",
)  # fmt: skip

_AVERAGE = "the signal, averaged over the pool's replicas, is"
SCALING = Section(
    ScalingSpec(),
    "When the pool grows and shrinks between `replicas.min` and `replicas.max`.",
    (
        Key(
            "policy",
            Choice(SCALING_POLICIES),
            "`threshold`: by `signal`, `up` and `down`. `target`: as many as hold `slo`, by what comes and what a "
            "replica was seen to serve.",
        ),
        Key(
            "signal", Choice(SIGNALS),
            "What is watched. Averages over replicas: requests waiting, requests in flight, KV cache usage (0–1). The "
            "last minute's p95, in seconds: time in the gateway's queue, time to the first token.",
        ),
        Key(
            "up",
            _scale_step(
                "above", ScalingSpec().up, "ScaleUp", "When replicas are added.", f"Add when {_AVERAGE} above this."
            ),
            "When replicas are added (`threshold`).",
        ),
        Key(
            "down",
            _scale_step(
                "below",
                ScalingSpec().down,
                "ScaleDown",
                "When replicas are removed. A removed replica finishes what it runs.",
                f"Remove when {_AVERAGE} at or below this (`threshold`).",
            ),
            "When replicas are removed; `target` keeps as many as were needed at any time in the last `for`.",
        ),
        Key("slo", OBJECTIVE, "The objective of `target`."),
        Key("capacity", Number(not_zero="leave it out: it is learned"),
            "Requests a second that one replica serves within `slo`, as `bench` or `plan` say; `target` begins with it "
            "and goes on with what it learns."),
        Key("surge", Whole(1, MOST_REPLICAS), "Most replicas that `target` adds within 15 s.",
            default="as many as there are, 4 at least"),
        Key(
            "cooldown",
            DURATION,
            "After a change, none in the other direction for this long.",
            default="`target`: 30s; `threshold`: none, its `for` begins anew after each change",
        ),
        Key("idle", SOME_TIME, "With `replicas.min: 0`: after this long without a request none is kept. The next "
            "request waits in the gateway, for `hold.timeout` of its model."),
        Key("gpus", Whole(1), "Budget: most GPUs that the pool may have at once."),
        Key("schedules", Named(SCHEDULE, "schedule", r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}",
                               "use letters, digits, dots, - and _ (at most 63)"), "Other bounds at some hours."),
    ),
    "Scaling",
)  # fmt: skip
