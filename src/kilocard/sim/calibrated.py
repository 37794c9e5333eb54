"""From measured points to a profile that says how far it can be trusted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from kilocard.core.errors import UsageError
from kilocard.core.statistics import percentile
from kilocard.perf.calibration import Fit, calibrate
from kilocard.perf.profile import Profile
from kilocard.perf.seen_steps import Stream, Watched
from kilocard.sim.prediction import Compared, Measurement, compared


@dataclass(frozen=True, slots=True)
class Calibrated:
    #: with its error: the median over throughput, TTFT and time between tokens of the points that were fitted
    profile: Profile
    fit: Fit
    #: every measured point beside the same one played on the profile
    points: tuple[Compared, ...]


def calibrated(measurements: Sequence[Measurement], base: Profile, alone: Sequence[Stream] = ()) -> Calibrated:
    """`base` gives the engine's room and, by its times, the prior. `alone`: requests sent one after the other, which
    are fitted too. Raises UsageError when no point can be used.
    """
    used = [Watched(each.streams, each.started_s) for each in measurements if each.left_out is None]
    if not used:
        reasons = "; ".join(f"{each.label}: {each.left_out}" for each in measurements)
        raise UsageError(f"no point of this run can be used. {reasons}")
    fit = calibrate([*used, Watched(alone)] if alone else used, base)
    profile = fit.profile(base)
    points = tuple(compared(each, profile) for each in measurements)
    errors = [abs(error) for point in points if point.measurement.left_out is None for error in point.errors()]
    return Calibrated(replace(profile, error=percentile(errors, 0.5), error_p90=percentile(errors, 0.9)), fit, points)
