"""What is asked, and one replica of it: its memory and its speed on one GPU type in one layout."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from kilocard.core.errors import PlanError
from kilocard.perf.architecture import Architecture
from kilocard.perf.gpus import Gpu
from kilocard.perf.layout import Layout
from kilocard.perf.link import Link
from kilocard.perf.memory import Memory, memory
from kilocard.perf.modelled import profile_of
from kilocard.perf.profile import Profile
from kilocard.perf.setting import EngineSetting
from kilocard.planner.demand import Demand
from kilocard.planner.fleet import Sizing
from kilocard.planner.layouts import Pins
from kilocard.planner.machine import Machines
from kilocard.planner.parameters import max_model_len, utilization

#: perf.memory's code for a default max_model_len that the cache has no room for
_TOO_LONG = "max_model_len_does_not_fit"


class Speed(StrEnum):
    """Where it comes from."""

    MEASURED = "measured"
    #: numbers of somebody's own, without a run behind them: taken as measured
    GIVEN = "as given"
    MODELLED = "modelled"


def speed_of(given: Profile) -> Speed:
    """A roofline in a file (calibrate without a run) says so and states its error; numbers set by hand state none."""
    if given.provenance == "measured":
        return Speed.MEASURED
    return Speed.GIVEN if given.error is None else Speed.MODELLED


@dataclass(frozen=True, slots=True)
class Question:
    """Everything that a plan depends on."""

    architecture: Architecture
    gpus: tuple[Gpu, ...]
    demand: Demand
    #: what is pinned of the engine's arguments; the rest is its defaults and ours
    setting: EngineSetting
    machines: Machines
    pins: Pins
    sizing: Sizing
    #: measured speed of one replica, instead of the model's
    measured: Profile | None = None
    #: a name of the engines' registry
    engine: str = "vllm"
    #: tokens of the longest request that is to be expected
    longest: int = 2048
    #: do we choose the engine's arguments? Else they are its defaults, as its log would show them
    tunes: bool = True

    @property
    def speed(self) -> Speed:
        if self.measured is None:
            return Speed.MODELLED
        return speed_of(self.measured)


@dataclass(frozen=True, slots=True)
class Replica:
    gpu: Gpu
    layout: Layout
    setting: EngineSetting
    #: joins the GPUs of its tensor-parallel group
    link: Link
    memory: Memory
    profile: Profile


def build(question: Question, gpu: Gpu, layout: Layout, setting: EngineSetting | None = None) -> Replica:
    """`setting` None: the pins, and our choice of what is open. Raises PlanError where it can't be."""
    link = question.machines.group_link(gpu, layout.tensor)
    setting, room = _room(question, gpu, layout, setting or _tuned(question, gpu))
    profile = question.measured
    if profile is None:
        profile = profile_of(
            question.architecture,
            gpu,
            layout,
            room,
            setting.version,
            link,
            engine=question.engine,
            between=question.machines.between(gpu, layout),
        )
        if layout.data > 1:  # the engine's limits are one rank's, the profile is the replica's
            profile = replace(
                profile,
                max_num_seqs=profile.max_num_seqs * layout.data,
                max_num_batched_tokens=profile.max_num_batched_tokens * layout.data,
            )
    else:  # with the length that is planned, and no more at once than was measured
        most = profile.max_num_seqs if setting.max_num_seqs is None else setting.max_num_seqs
        profile = replace(profile, max_model_len=room.max_model_len, max_num_seqs=min(profile.max_num_seqs, most))
    return Replica(gpu, layout, setting, link, room, profile)


def _tuned(question: Question, gpu: Gpu) -> EngineSetting:
    """Arguments of our choice where they are open, but for max_num_seqs, which needs the speed first."""
    setting = question.setting
    if not question.tunes:
        return setting
    return replace(
        setting,
        utilization=setting.utilization or utilization(gpu),
        max_model_len=setting.max_model_len or max_model_len(question.longest, question.architecture.max_length),
    )


def _room(question: Question, gpu: Gpu, layout: Layout, setting: EngineSetting) -> tuple[EngineSetting, Memory]:
    """A default length that does not fit gives way to the longest that does: the command has to start."""
    try:
        return setting, memory(question.architecture, gpu, layout, setting)
    except PlanError as error:
        if error.code != _TOO_LONG or setting.max_model_len is not None:
            raise
        short = replace(setting, max_model_len=question.longest)
        longest = memory(question.architecture, gpu, layout, short).largest_max_model_len
        setting = replace(setting, max_model_len=max(question.longest, longest // 256 * 256))
        return setting, memory(question.architecture, gpu, layout, setting)
