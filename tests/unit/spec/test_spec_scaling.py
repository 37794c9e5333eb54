"""The keys of `scaling`: what they mean, what contradicts what."""

from __future__ import annotations

from typing import Any

import pytest

from kilocard.core.errors import SpecError
from kilocard.spec.dump import dump
from kilocard.spec.model import ClusterSpec
from kilocard.spec.parse import parse
from kilocard.spec.problems import InvalidClusterFile
from kilocard.spec.scaling import ObjectiveSpec, ScaleStep, ScalingSpec, ScheduleSpec
from kilocard.spec.yaml_document import read_document

WHOLE = """
pools:
  p:
    engine: vllm
    model: m
    replicas: {min: 0, max: 8}
    scaling:
      policy: target
      slo: {ttft: 1s, share: 99%}
      capacity: 2.5
      surge: 4
      down: {for: 10m}
      cooldown: 1m
      idle: 20m
      gpus: 16
      schedules:
        working-hours: {days: mon-fri, from: 08:00, to: 20:00, zone: Europe/Berlin, min: 2}
        night: {days: "sat, sun", from: 22:00, to: 06:30, max: 1}
"""


def read(text: str) -> ClusterSpec:
    document = read_document(text)
    return parse(document.value, texts=document.texts)


def scaling(text: str) -> ScalingSpec:
    found = read(text).pools["p"].scaling
    assert found is not None
    return found


def problems(**pool: Any) -> list[str]:
    with pytest.raises(SpecError) as caught:
        parse({"pools": {"p": {"engine": "vllm", "model": "m", **pool}}})
    assert isinstance(caught.value, InvalidClusterFile)
    return str(caught.value).splitlines()


def test_a_whole_one() -> None:
    assert scaling(WHOLE) == ScalingSpec(
        policy="target",
        slo=ObjectiveSpec(1.0, 0.99),
        capacity=2.5,
        surge=4,
        down=ScaleStep(5.0, 600.0),
        cooldown=60.0,
        idle=1200.0,
        gpus=16,
        schedules={
            "working-hours": ScheduleSpec("working-hours", (0, 1, 2, 3, 4), 480, 1200, "Europe/Berlin", 2),
            "night": ScheduleSpec("night", (5, 6), 1320, 390, max=1),
        },
    )


def test_it_comes_back_from_its_dump() -> None:
    spec = read(WHOLE)
    assert parse(dump(spec)) == spec


def test_the_default_is_r50() -> None:
    assert scaling("pools: {p: {engine: vllm, model: m, scaling: {}}}") == ScalingSpec(
        "threshold", "waiting", ScaleStep(20, 30, 1), ScaleStep(5, 300, 1)
    )


def test_the_designs_own_example() -> None:
    line = "scaling: {signal: waiting, up: {above: 20, for: 30s, step: 1}, down: {below: 5, for: 5m, step: 1}}"
    assert scaling(f"pools: {{p: {{engine: vllm, model: m, {line}}}}}") == ScalingSpec()


@pytest.mark.parametrize(
    ("pool", "problem"),
    [
        ({"scaling": {"policy": "hpa"}}, 'pools.p.scaling.policy: is "hpa", which is not known'),
        ({"scaling": {"slo": {"ttft": 1}}}, "pools.p.scaling.slo: is there, but policy is threshold"),
        ({"scaling": {"policy": "target", "up": {"above": 3}}}, "pools.p.scaling.up: is there, but policy is target"),
        (
            {"scaling": {"signal": "ttft", "up": {"above": 2}}},
            "pools.p.scaling.down.below: is missing, and its default counts requests",
        ),
        ({"scaling": {"idle": "5m"}}, "pools.p.scaling.idle: is there, but replicas.min is 1"),
        (
            {"replicas": {"min": 2, "max": 4}, "gpus": 4, "scaling": {"gpus": 7}},
            "pools.p.scaling.gpus: is 7, too few for 2 × 4",
        ),
        ({"scaling": {"capacity": 0}, }, "pools.p.scaling.capacity: is 0; leave it out"),
        (
            {"scaling": {"schedules": {"day": {"min": 3}}}},
            "pools.p.scaling.schedules.day: has a min of 3 and a max of 1",
        ),
        ({"scaling": {"schedules": {"day": {"max": 3}}}}, "pools.p.scaling.schedules.day.max: is 3, more than"),
        ({"scaling": {"schedules": {"day": {"from": "08:00"}}}}, "pools.p.scaling.schedules.day: changes nothing"),
        (
            {"scaling": {"schedules": {"day": {"min": 1, "from": "8:00", "to": "08:00"}}}},
            "pools.p.scaling.schedules.day.to: is the same as from",
        ),
        ({"scaling": {"schedules": {"day": {"days": "mo"}}}}, 'pools.p.scaling.schedules.day.days: is "mo"'),
        ({"scaling": {"schedules": {"day": {"from": "25:00"}}}}, 'pools.p.scaling.schedules.day.from: is "25:00"'),
        ({"scaling": {"schedules": {"day": {"zone": "at home"}}}}, 'pools.p.scaling.schedules.day.zone: is "at home"'),
    ],
)  # fmt: skip
def test_problems(pool: dict[str, Any], problem: str) -> None:
    assert [each for each in problems(**pool) if each.startswith(problem)], problems(**pool)
