"""Virtual time has the last word on the number of replicas: the fewest, from the closed form's on, that meet the
objective when they are played."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from random import Random

from kilocard.core.errors import PlanError
from kilocard.perf.profile import Profile
from kilocard.planner.demand import Objective
from kilocard.planner.replica import Question
from kilocard.planner.search import Candidate, at_load, fits, price
from kilocard.planner.trial import Trial, trial

#: replicas are added so often where p95 misses the objective, a tenth of them each time
TRIES = 6
#: planner.trial's code for a trial without a request to speak of
_NOTHING_SERVED = "nothing_served"
#: layouts that are tried as well where the first one needs more replicas than its closed form said
RIVALS = 4
#: p95 of some hundred requests near the limit is not known to better than this share: an objective that somebody asked
#: for may be missed by so much, where a measurement's error would make up for it. Our usual one gives way further
NEAR = 0.1


@dataclass(frozen=True, slots=True)
class Settled:
    choice: Candidate
    #: None: no rate was asked for, so there is nothing to queue
    trial: Trial | None
    #: replicas that the closed form alone would have taken
    before: int
    #: p95 misses, by less than what two measurements of a replica differ by: one replica more was not added for that
    forgiven: bool = False
    #: p95 meets the objective, or would by a measurement's error
    meets: bool = True


def settle_best(question: Question, candidates: Sequence[Candidate], rng: Random) -> tuple[Settled, list[Candidate]]:
    """The first of them as `settle` leaves it; where that took more replicas, against those that were dearer before and
    are cheaper now. Also the others, those that were tried with the replicas that they need."""
    best, others, tries = settle(question, candidates[0], rng), [], 0
    for each in candidates[1:]:
        raised = not best.meets or best.choice.replicas > best.before
        if not (raised and each.enough and best.choice.enough and tries < RIVALS and price(each) < price(best.choice)):
            others.append(each)
            continue
        tries += 1
        rival = settle(question, each, rng)
        if rival.meets and (not best.meets or price(rival.choice) < price(best.choice)):
            best, rival = rival, best
        others.append(rival.choice)
    return best, sorted(others, key=lambda each: (not each.enough, price(each))) if tries else others


def settle(question: Question, choice: Candidate, rng: Random) -> Settled:
    """As many replicas as the closed form says, more where they miss and GPUs are there; else what there is."""
    before = choice.replicas
    if question.demand.rate_per_s is None:
        return Settled(choice, None, before)
    player = _Player(question, choice, rng.getrandbits(64))
    try:
        found = player.play(before)
    except PlanError as error:
        if choice.enough or error.code != _NOTHING_SERVED:
            raise
        return Settled(choice, None, before, meets=False)  # so far too few GPUs that there is nothing to measure
    if found.meets or not choice.enough:
        return found.settled(before)
    missed, fit = before, fits(question.machines, choice.layout)
    for _ in range(TRIES):
        more = missed + max(1, missed // 10)
        if fit is not None:
            more = min(more, fit)
        if more <= missed:
            break
        found = player.play(more)
        if found.meets:
            return player.fewest(missed, found).settled(before)
        missed = more
    return found.settled(before)


@dataclass(frozen=True, slots=True)
class _Played:
    choice: Candidate
    trial: Trial
    meets: bool
    forgiven: bool

    def settled(self, before: int) -> Settled:
        return Settled(self.choice, self.trial, before, self.forgiven, self.meets)


class _Player:
    """The same chance for every number of replicas, or one more could look worse by luck."""

    def __init__(self, question: Question, choice: Candidate, chance: int) -> None:
        self._question = question
        self._choice = choice
        self._chance = chance

    def play(self, replicas: int) -> _Played:
        choice, slack = self._choice, self._question.sizing.slack
        if replicas != choice.replicas:
            each = at_load(self._question, choice.profile, choice.capacity, replicas)
            choice = replace(choice, replicas=replicas, each=each)
        objective = self._question.demand.objective
        tried = self._trial(choice, choice.profile)
        meets = _meets(tried, objective)
        forgiven = (
            not meets
            and slack > 0
            and _meets(tried, _wider(objective))
            and _meets(self._trial(choice, faster(choice.profile, slack)), objective)
        )
        return _Played(choice, tried, meets or forgiven, forgiven)

    def fewest(self, missed: int, met: _Played) -> _Played:
        """Between a number that misses and one that meets."""
        while met.choice.replicas - missed > 1:
            middle = self.play((missed + met.choice.replicas) // 2)
            if middle.meets:
                met = middle
            else:
                missed = middle.choice.replicas
        return met

    def _trial(self, choice: Candidate, profile: Profile) -> Trial:
        demand = self._question.demand
        assert demand.rate_per_s is not None
        return trial(
            profile,
            replicas=choice.replicas,
            rate_per_s=demand.rate_per_s,
            inputs=demand.input,
            outputs=demand.output,
            streams=choice.each.running,
            rng=Random(self._chance),  # noqa: S311  # a trial, not a secret
        )


def faster(profile: Profile, share: float) -> Profile:
    """All its times shorter: 0.01 makes it 1 % faster."""
    times = {each.name: getattr(profile, each.name) / (1 + share) for each in fields(profile) if each.name[-2:] == "_s"}
    return replace(profile, **times)


def _wider(objective: Objective) -> Objective:
    return replace(
        objective,
        ttft_s=objective.ttft_s * (1 + NEAR) if objective.asked_ttft else math.inf,
        tpot_s=objective.tpot_s * (1 + NEAR) if objective.asked_tpot else math.inf,
    )


def _meets(tried: Trial, objective: Objective) -> bool:
    tpot = 0.0 if tried.tpot_s is None else tried.tpot_s.p95
    return objective.met(tried.ttft_s.p95, tpot) and not tried.turned_away
