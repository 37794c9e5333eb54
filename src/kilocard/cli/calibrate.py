"""`kilocard calibrate`: a profile from what `kilocard bench` measured, or from a roofline alone."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kilocard.cli.calibration_run import Run, read_run
from kilocard.cli.calibration_table import document, page, show
from kilocard.cli.output import notes, print_json
from kilocard.core.errors import UsageError
from kilocard.perf.profile import Profile
from kilocard.sim.calibrated import calibrated

#: vLLM's max-num-batched-tokens for its server on most GPUs; docs/calibrate.md says how to see the real one
BATCHED_TOKENS = 2048
#: above this median error a profile should not be planned with
DOUBTFUL = 0.15


def calibrate(
    run_dir: Annotated[
        Path | None, typer.Argument(help="What `kilocard bench … --out` wrote: results.json and requests.jsonl.")
    ] = None,
    out: Annotated[Path, typer.Option(help="The profile, for `emulate --profile` and `plan --profile`.")] = Path(
        "profile.yaml"
    ),
    name: Annotated[str | None, typer.Option(help="The profile's name. Default: the model's.")] = None,
    gpu: Annotated[str | None, typer.Option(help="The GPU that was measured; it is noted in the profile.")] = None,
    kv_tokens: Annotated[
        int | None, typer.Option(help='"GPU KV cache size: N tokens" in vLLM\'s log. Default: as the bench saw it.')
    ] = None,
    max_num_seqs: Annotated[
        int | None, typer.Option(help="The engine's sequence slots. Default: as the bench saw it.")
    ] = None,
    max_num_batched_tokens: Annotated[
        int | None, typer.Option(help=f"Tokens of one step at most. Default: {BATCHED_TOKENS}.")
    ] = None,
    block_size: Annotated[int | None, typer.Option(help="Tokens of a KV block. Default: 16.")] = None,
    max_model_len: Annotated[int | None, typer.Option(help="Tokens of one request at most. Default: 8192.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Fit the speed of an engine to a bench run: the time of a step, by what is in it.

    Prints what the numbers are worth: the same load played on the profile, beside what was measured.
    """
    if run_dir is None:
        raise UsageError("give the folder that `kilocard bench URL --out FOLDER` wrote")
    run = read_run(run_dir)
    base = _base(
        run,
        name,
        gpu,
        kv_tokens,
        max_num_seqs,
        max_num_batched_tokens,
        block_size=block_size,
        max_model_len=max_model_len,
    )
    found = calibrated(run.measurements, base)
    profile = found.profile
    out.write_text(page(found, run.results.about.started_at))
    if json:
        print_json(document(found))
    else:
        show(found)
    notes.print(f"written to {out}")
    if profile.error is not None and profile.error > DOUBTFUL:
        notes.print(
            f"[yellow]The profile misses half of the measured numbers by more than {profile.error:.0%}: measure again, "
            "longer and on an idle machine, before you plan with it.[/]"
        )


def _base(
    run: Run,
    name: str | None,
    gpu: str | None,
    kv_tokens: int | None,
    max_num_seqs: int | None,
    max_num_batched_tokens: int | None,
    *,
    block_size: int | None,
    max_model_len: int | None,
) -> Profile:
    """The engine's room, and what is to be noted; no speed yet."""
    target = run.results.target
    room = kv_tokens or target.kv_tokens
    if room is None:
        raise UsageError('--kv-tokens: the run does not say; it is "GPU KV cache size: N tokens" in the engine\'s log')
    return Profile(
        name=name or target.model.rpartition("/")[2] or "measured",
        step_fixed_s=1e-6,
        prefill_token_s=0.0,
        decode_seq_s=0.0,
        kv_token_s=0.0,
        kv_tokens=room,
        max_num_seqs=max_num_seqs or target.max_num_seqs or _slots_seen(run),
        max_num_batched_tokens=max_num_batched_tokens or BATCHED_TOKENS,
        block_size=block_size or 16,
        max_model_len=max_model_len or 8192,
        engine=target.engine or "",
        engine_version=target.engine_version or "",
        gpu=gpu or "",
        date=run.results.about.started_at[:10],
        note=f"Fitted by kilocard calibrate to a run against {target.model or 'a model'}; see the comments above.",
    )


def _slots_seen(run: Run) -> int:
    """The most that ran at once, where others waited meanwhile."""
    full = [
        point.engine.running_max
        for point in run.results.points
        if point.engine.running_max and point.engine.waiting_max
    ]
    if not full:
        raise UsageError("--max-num-seqs: the run does not say, and no load of it filled the engine's slots")
    return int(max(full))
