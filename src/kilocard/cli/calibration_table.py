"""What a calibration found: for people, for machines, and as the profile's file."""

from __future__ import annotations

from typing import Any

import yaml
from rich.table import Table

from kilocard.cli.output import results
from kilocard.perf.calibration import Fit, Term
from kilocard.perf.profile import Profile
from kilocard.sim.calibrated import Calibrated
from kilocard.sim.prediction import Compared, Outcome

_MEANS = {
    "step_fixed_s": "each step",
    "weights_s": "reading the weights, under the products",
    "experts_s": "reading all experts, likewise",
    "prefill_token_s": "each prompt token",
    "decode_seq_s": "each decoding sequence (its products)",
    "sequence_s": "each decoding sequence (the rest)",
    "kv_token_s": "each token of KV cache that is read",
    "attention_s": "each pair of prompt tokens (attention)",
    "request_s": "a request's way in and out, outside of all steps",
}


def show(found: Calibrated) -> None:
    profile, fit = found.profile, found.fit
    table = _table(f"Profile {profile.name}")
    for column in ("", "number", "value", "±", "note"):
        table.add_column(column, justify="right" if column in {"value", "±"} else "left")
    for term in _ordered(fit):
        error = "" if term.error is None else _time(term.error)
        table.add_row(_MEANS[term.name], term.name, _time(term.value), error, term.held or "")
    results.print(table)
    results.print(
        f"{fit.steps} steps were seen, in {fit.windows} stretches. The profile misses half of the stretches by under "
        f"{fit.median_error:.1%}, nine of ten by under {fit.p90_error:.1%}.\n{_ahead(found)}\n"
    )
    table = _table("The same load, played on the profile")
    table.add_column("")
    for column in ("tok/s seen", "modelled", "", "TTFT seen", "modelled", "", "between tokens", "modelled", ""):
        table.add_column(column, justify="right")
    table.add_column("")
    for point in found.points:
        reason = point.measurement.left_out
        table.add_row(point.measurement.label, *_cells(point), f"not in the fit: {reason}" if reason else "")
    results.print(table)
    if profile.error is not None:
        results.print(f"Median error of these numbers: {profile.error:.1%}.")


def show_modelled(profile: Profile) -> None:
    table = _table(f"Profile {profile.name}: modelled, not measured")
    for column in ("", "number", "value"):
        table.add_column(column, justify="right" if column == "value" else "left")
    for key, meaning in _MEANS.items():
        table.add_row(meaning, key, _time(getattr(profile, key)))
    results.print(table)
    if profile.error is not None:
        results.print(f"Expected error: {profile.error:.0%}. {profile.note}")


def modelled_page(profile: Profile) -> str:
    return "# Modelled from the shape of the model and the data sheet of the GPU; nothing was measured.\n" + _yaml(
        profile
    )


def page(found: Calibrated, measured_at: str) -> str:
    """The profile as YAML; what it is worth stands in comments above it."""
    fit = found.fit
    lines = [
        f"Fitted by kilocard calibrate to a bench run of {measured_at or 'an unknown day'}.",
        f"Steps seen: {fit.steps}. Error over stretches of steps: median {fit.median_error:.1%}, "
        f"90th percentile {fit.p90_error:.1%}.",
        _ahead(found),
        *(f"{term.name} was not fitted: {term.held}." for term in _ordered(fit) if term.held),
    ]
    lines.append("Measured → modelled (mean):")
    for point in found.points:
        seen, modelled, reason = point.seen, point.modelled, point.measurement.left_out
        text = (
            f"  {point.measurement.label}: {seen.output_tokens_per_s:.1f} → {modelled.output_tokens_per_s:.1f} tokens/s"
        )
        for what, was, said in (("TTFT", seen.ttft_s, modelled.ttft_s), ("ITL", seen.itl_s, modelled.itl_s)):
            if was is not None and said is not None:
                text += f", {what} {_time(was)} → {_time(said)}"
        lines.append(text + (f" (not in the fit: {reason})" if reason else ""))
    comments = "".join(f"# {line}\n" for line in lines)
    return comments + _yaml(found.profile)


def document(found: Calibrated) -> dict[str, Any]:
    fit = found.fit
    return {
        "profile": written(found.profile),
        "terms": [
            {"name": term.name, "value_s": term.value, "standard_error_s": term.error, "held": term.held}
            for term in _ordered(fit)
        ],
        "steps": fit.steps,
        "steps_ahead": fit.steps_ahead,
        "step_error": {"median": fit.median_error, "p90": fit.p90_error},
        "points": [
            {
                "label": point.measurement.label,
                "left_out": point.measurement.left_out,
                "measured": _outcome(point.seen),
                "modelled": _outcome(point.modelled),
            }
            for point in found.points
        ],
    }


def _outcome(outcome: Outcome) -> dict[str, float | None]:
    return {
        "output_tokens_per_s": outcome.output_tokens_per_s,
        "ttft_s": outcome.ttft_s,
        "itl_s": outcome.itl_s,
    }


def _ahead(found: Calibrated) -> str:
    seen, taken = found.fit.steps_ahead, found.profile.steps_ahead
    if seen is None:
        return f"Whether steps are scheduled ahead, the run does not show; taken: {taken:g}."
    return f"Steps scheduled ahead, counted where requests came in beside others: {seen}."


def _ordered(fit: Fit) -> list[Term]:
    order = list(_MEANS)
    return sorted(fit.terms, key=lambda term: order.index(term.name))


def _yaml(profile: Profile) -> str:
    return yaml.safe_dump(written(profile), sort_keys=False, allow_unicode=True, width=110)


def _table(title: str) -> Table:
    results.print(title, style="bold")
    return Table(box=None, pad_edge=False, header_style="bold")


def written(profile: Profile) -> dict[str, Any]:
    """Four digits: no fit is better."""
    return {
        key: float(f"{value:.4g}") if isinstance(value, float) else value for key, value in profile.to_mapping().items()
    }


def _cells(point: Compared) -> list[str]:
    cells: list[str] = []
    pairs = (
        (point.seen.output_tokens_per_s, point.modelled.output_tokens_per_s, "{:.1f}".format),
        (point.seen.ttft_s, point.modelled.ttft_s, _time),
        (point.seen.itl_s, point.modelled.itl_s, _time),
    )
    for seen, modelled, text in pairs:
        known = seen is not None and modelled is not None
        cells += [
            "–" if seen is None else text(seen),
            "–" if modelled is None else text(modelled),
            f"{modelled / seen - 1:+.1%}" if known and seen else "",  # type: ignore[operator]  # both are known then
        ]
    return cells


def _time(seconds: float) -> str:
    """Three digits in the unit that fits."""
    for unit, factor in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6), ("ns", 1e-9)):
        if seconds >= factor:
            return f"{seconds / factor:.3g} {unit}"
    return "0" if not seconds else f"{seconds / 1e-12:.3g} ps"
