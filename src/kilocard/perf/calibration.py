"""The numbers of a profile, fitted to what a load tester saw. Pure: streams in, numbers and what they are worth out.

A window of steps (seen_steps.py) took

    steps × fixed + Σ max(weights, products) + sequences × sequence + KV tokens × kv + pairs × attention

Two forms are tried. In the linear one weights are 0 and each sequence costs what it costs; it describes an engine whose
steps all have the same limit. In the roofline one the weights are read while the products run, and a decoding token's
products cost what a prompt token's do. The second has to be clearly better to be taken.

What the run could not tell apart stays at the prior (a roofline's value) or at 0, and is named. A number is told apart
when its standard error is under half of it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from kilocard.core.errors import UsageError
from kilocard.core.statistics import mean, percentile
from kilocard.perf.least_squares import Row, Solution, robust
from kilocard.perf.profile import Profile
from kilocard.perf.seen_ahead import steps_ahead
from kilocard.perf.seen_steps import Step, Watched, Window, windows

#: what is given up first when the run can't tell: the smallest part of a step first
_GIVEN_UP = (
    "attention_s", "kv_token_s", "request_s", "sequence_s", "decode_seq_s", "experts_s", "weights_s", "prefill_token_s",
)  # fmt: skip
_LINEAR = ("step_fixed_s", "prefill_token_s", "decode_seq_s", "kv_token_s", "attention_s", "request_s")
_ROOFLINE = ("step_fixed_s", "weights_s", "prefill_token_s", "sequence_s", "kv_token_s", "attention_s", "request_s")
#: of a mixture of experts, where the base says which share of them a token picks
_EXPERTS = ("experts_s", *_ROOFLINE)
#: standard error above which a number says nothing, as a share of it
_UNSURE = 0.5
#: attention to one token, as a share of a token's products, is at most this: 4 × hidden × layers operations against
#: 2 × parameters is 3.7e-5 for a 7B model and 2.6e-4 for one of 135M
_ATTENTION = 2e-3
#: the roofline form has to leave so much less than the linear one
_CLEARLY = 0.93
#: of what the linear form calls fixed, the part that the roofline form calls weights, to begin with
_STARTS = (0.2, 0.5, 0.9)
#: windows of one point that are used at most, spread evenly over it
MOST_WINDOWS = 600
#: and at least, over all points
LEAST_WINDOWS = 20


@dataclass(frozen=True, slots=True)
class Term:
    name: str
    #: seconds
    value: float
    #: standard error in seconds; None: not fitted
    error: float | None = None
    #: why it was not fitted
    held: str | None = None


@dataclass(frozen=True, slots=True)
class Fit:
    terms: tuple[Term, ...]
    windows: int
    steps: int
    #: median and 90th percentile of |modelled − seen| / seen over the windows, shares
    median_error: float
    p90_error: float
    #: modelled / seen − 1 for each point: does the model lean at some load? None: no windows there
    leaning: tuple[float | None, ...]
    #: steps that the engine schedules ahead, as far as the run shows it (seen_ahead.py)
    steps_ahead: int | None = None

    def value(self, name: str) -> float:
        return next((term.value for term in self.terms if term.name == name), 0.0)

    def profile(self, base: Profile) -> Profile:
        """`base` (its name and its room) with what was found; every time in it is replaced."""
        times = {
            "step_fixed_s": max(self.value("step_fixed_s"), 1e-6),
            "weights_s": self.value("weights_s"),
            "prefill_token_s": self.value("prefill_token_s"),
            "decode_seq_s": self.value("decode_seq_s"),
            "sequence_s": self.value("sequence_s"),
            "kv_token_s": self.value("kv_token_s"),
            "attention_s": self.value("attention_s"),
            "experts_s": self.value("experts_s"),
            "request_s": self.value("request_s"),
            "steps_ahead": base.steps_ahead if self.steps_ahead is None else float(self.steps_ahead),
        }
        return replace(base, provenance="measured", **times)  # type: ignore[arg-type]  # names of fields, all floats


def calibrate(points: Sequence[Watched], base: Profile) -> Fit:
    """Each point is one load. `base` gives the engine's room (max_num_batched_tokens) and, by its times, the prior.

    Raises UsageError when so little was seen that no number would mean anything.
    """
    seen = [_thinned(windows(watched, budget=base.max_num_batched_tokens)) for watched in points]
    rows = [window for each in seen for window in each]
    if len(rows) < LEAST_WINDOWS:
        raise UsageError(
            f"only {len(rows)} stretches of steps could be seen, {LEAST_WINDOWS} are needed: measure longer, or with "
            "more output tokens"
        )
    weights = [1 / (window.duration_s**2 * len(each)) for each in seen for window in each]
    linear = _fitted(_LINEAR, rows, weights, base)
    fixed = linear.value("step_fixed_s")
    token = _token_at_most(rows, fixed)
    starts = [{"weights_s": part * fixed, "experts_s": part * fixed, "prefill_token_s": token} for part in _STARTS]
    form = _EXPERTS if base.expert_share < 1 else _ROOFLINE
    roofline = min((_fitted(form, rows, weights, base, start) for start in starts), key=_residual)
    reads = roofline.value("weights_s") + roofline.value("experts_s")
    better = _residual(roofline) < _CLEARLY * _residual(linear) and reads > 0
    fit = _report(roofline if better else linear, seen, base)
    streams = [watched.streams for watched in points]
    return replace(
        fit,
        steps_ahead=steps_ahead(streams, request_s=fit.value("request_s"), budget=base.max_num_batched_tokens),
    )


@dataclass(frozen=True, slots=True)
class _Model:
    """Names that are fitted, values that are held, and the solution."""

    names: tuple[str, ...]
    held: dict[str, tuple[float, str]]
    solution: Solution

    def value(self, name: str) -> float:
        if name in self.held:
            return self.held[name][0]
        return self.solution.values[self.names.index(name)] if name in self.names else 0.0


def _fitted(
    form: tuple[str, ...],
    rows: Sequence[Window],
    weights: Sequence[float],
    base: Profile,
    start: Mapping[str, float] | None = None,
) -> _Model:
    """Fit all names of the form; hold the ones that the rows can't tell, one after the other."""
    held: dict[str, tuple[float, str]] = {}
    if not any(window.from_sending for window in rows):
        held["request_s"] = (0.0, "no request found the engine idle")
    if all(step.decode_seqs <= 1 for window in rows for step in window.steps):
        for name in {"decode_seq_s", "sequence_s"} & set(form):
            held[name] = (0.0, "never two streams at once")
    while True:
        names = tuple(name for name in form if name not in held)
        share = None if form is _LINEAR else base.expert_share
        solution = _solved(names, held, rows, weights, start or {}, share)
        found = zip(names, solution.values, solution.errors, strict=True)
        unsure = {name: (value, error) for name, value, error in found if not error < _UNSURE * value}
        given_up = next((name for name in _GIVEN_UP if name in unsure), None)
        model = _Model(names, held, solution)
        if given_up is not None:
            held[given_up] = _instead(given_up, *unsure[given_up], base)
        elif "attention_s" in names and model.value("attention_s") > _ATTENTION * model.value("prefill_token_s"):
            held["attention_s"] = (base.attention_s, "what looked like it was too much for any model's attention")
        else:
            return model


def _token_at_most(rows: Sequence[Window], fixed_s: float) -> float:
    """Seconds of a prompt token if the steps with prompts in them did nothing else: where the search begins."""
    found = [0.0]
    for window in rows:
        tokens = sum(step.prefill_tokens for step in window.steps)
        if tokens:
            others = sum(not step.prefill_tokens for step in window.steps)
            found.append(max(window.duration_s - others * fixed_s, 0.0) / tokens)
    return percentile(found, 0.5)


def _instead(name: str, found: float, error: float, base: Profile) -> tuple[float, str]:
    """The value of a number that could not be told, and why it has it."""
    prior = getattr(base, name, 0.0)
    # Weights decide which side of the maximum holds, so a foreign value of theirs would bend all others.
    if prior and name not in {"weights_s", "experts_s"} and abs(prior - found) <= 2 * error:
        return prior, "the run could not tell it from the others; the roofline's value"
    return 0.0, "the run could not tell it from the others" if found else "the run shows none of it"


def _solved(
    names: tuple[str, ...],
    held: Mapping[str, tuple[float, str]],
    rows: Sequence[Window],
    weights: Sequence[float],
    start: Mapping[str, float],
    expert_share: float | None,
) -> Solution:
    """`expert_share` None: the linear form."""

    def columns(wanted: tuple[str, ...], values: Sequence[float]) -> list[Row]:
        now = {name: value for name, (value, _) in held.items()} | dict(zip(names, values, strict=True))
        if expert_share is None:
            return [_row(wanted, window, None) for window in rows]
        roof = _Roof(
            now.get("weights_s", 0.0), now.get("experts_s", 0.0), now.get("prefill_token_s", 0.0), expert_share
        )
        return [_row(wanted, window, roof) for window in rows]

    begin = [start.get(name, 0.0) for name in names]
    known = tuple(name for name, (value, _) in held.items() if value)
    taken = [
        math.fsum(held[name][0] * has for name, has in zip(known, row, strict=True)) for row in columns(known, begin)
    ]
    left = [window.duration_s - off for window, off in zip(rows, taken, strict=True)]
    return robust(lambda values: columns(names, values), left, weights, begin)


class _Roof(NamedTuple):
    """By which a step is on one side of the maximum or the other."""

    weights_s: float
    experts_s: float
    token_s: float
    expert_share: float

    def touched(self, step: Step) -> float:
        """Share of the experts, as in Profile.step_s."""
        missed: float = (1.0 - self.expert_share) ** (step.prefill_tokens + step.decode_seqs)
        return 1.0 - missed

    def reads(self, step: Step) -> bool:
        """Does reading take longer than the products?"""
        reading = self.weights_s + (self.experts_s * self.touched(step) if self.experts_s else 0.0)
        return reading >= self.token_s * (step.prefill_tokens + step.decode_seqs)


def _row(names: tuple[str, ...], window: Window, roof: _Roof | None) -> Row:
    """What one window has of each number. `roof` None: the linear form."""
    steps = window.steps
    decode = float(sum(step.decode_seqs for step in steps))
    prefill = float(sum(step.prefill_tokens for step in steps))
    reading = touched = 0.0
    if roof is not None:
        under = [step for step in steps if roof.reads(step)]
        reading = float(len(under))
        if "experts_s" in names:
            touched = math.fsum(roof.touched(step) for step in under)
        prefill += decode - sum(step.prefill_tokens + step.decode_seqs for step in under)
    has = {
        "step_fixed_s": float(len(steps)),
        "weights_s": reading,
        "experts_s": touched,
        "prefill_token_s": prefill,
        "decode_seq_s": decode,
        "sequence_s": decode,
        "kv_token_s": float(sum(step.kv_read for step in steps)),
        "attention_s": float(sum(step.attended for step in steps)),
        "request_s": float(window.from_sending),
    }
    return tuple(has[name] for name in names)


def _report(model: _Model, seen: Sequence[Sequence[Window]], base: Profile) -> Fit:
    terms = [
        Term(name, value, error)
        for name, value, error in zip(model.names, model.solution.values, model.solution.errors, strict=True)
    ]
    terms += [Term(name, value, held=why) for name, (value, why) in model.held.items()]
    if "sequence_s" in (*model.names, *model.held):
        # In this form a decoding token's products are a prompt token's.
        terms.append(Term("decode_seq_s", model.value("prefill_token_s"), held="taken as a prompt token's"))
    fit = Fit(tuple(terms), 0, 0, 0.0, 0.0, ())
    profile = fit.profile(base)
    ratios = [[_modelled(window, profile) / window.duration_s for window in each] for each in seen]
    errors = [abs(ratio - 1) for each in ratios for ratio in each]
    return replace(
        fit,
        windows=len(errors),
        steps=sum(len(window.steps) for each in seen for window in each),
        median_error=percentile(errors, 0.5),
        p90_error=percentile(errors, 0.9),
        leaning=tuple(mean(each) - 1 if each else None for each in ratios),
    )


def _modelled(window: Window, profile: Profile) -> float:
    return math.fsum(profile.step_s(*step) for step in window.steps) + profile.request_s * window.from_sending


def _residual(model: _Model) -> float:
    return model.solution.residual


def _thinned(found: Sequence[Window]) -> list[Window]:
    good = [window for window in found if window.duration_s > 0]
    every = max(1, len(good) / MOST_WINDOWS)
    return [good[int(place * every)] for place in range(int(len(good) / every))]
