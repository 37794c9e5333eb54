"""`kilocard calibrate`: a profile from what `kilocard bench` measured, or from a roofline alone."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kilocard.cli.calibration_base import BATCHED_TOKENS, MAX_MODEL_LEN, Told, base, modelled
from kilocard.cli.calibration_check import check, checked_document, show_checked
from kilocard.cli.calibration_run import read_run
from kilocard.cli.calibration_table import document, modelled_page, page, show, show_modelled, written
from kilocard.cli.output import notes, print_json
from kilocard.core.errors import UsageError
from kilocard.sim.calibrated import calibrated

#: above this median error a profile should not be planned with
DOUBTFUL = 0.15


def calibrate(
    run_dir: Annotated[
        Path | None,
        typer.Argument(
            help="What `kilocard bench … --out` wrote: results.json and requests.jsonl. Without it: a roofline of "
            "--model on --gpu, marked as modelled."
        ),
    ] = None,
    out: Annotated[Path, typer.Option(help="The profile, for `emulate --profile` and `plan --profile`.")] = Path(
        "profile.yaml"
    ),
    name: Annotated[str | None, typer.Option(help="The profile's name. Default: the model's.")] = None,
    model: Annotated[
        str | None,
        typer.Option(
            help="A config.json, a folder with one, or a built-in name. With --gpu, what the run can't tell is taken "
            "from the roofline."
        ),
    ] = None,
    gpu: Annotated[
        str | None, typer.Option(help="The GPU that was measured, e.g. A100-80GB. Without --model it is only noted.")
    ] = None,
    tensor: Annotated[int, typer.Option(help="Tensor parallel size, for the roofline.")] = 1,
    pipeline: Annotated[int, typer.Option(help="Pipeline parallel size, for the roofline.")] = 1,
    engine_version: Annotated[str | None, typer.Option(help="Default: as the bench saw it.")] = None,
    kv_tokens: Annotated[
        int | None, typer.Option(help='"GPU KV cache size: N tokens" in vLLM\'s log. Default: as the bench saw it.')
    ] = None,
    max_num_seqs: Annotated[
        int | None, typer.Option(help="The engine's sequence slots. Default: as the bench saw it.")
    ] = None,
    max_num_batched_tokens: Annotated[
        int | None, typer.Option(help=f"Tokens of one step at most. Default: {BATCHED_TOKENS}.")
    ] = None,
    block_size: Annotated[
        int | None, typer.Option(help="Tokens of a KV block. Default: as the bench saw it, else 16.")
    ] = None,
    max_model_len: Annotated[
        int | None, typer.Option(help=f"Tokens of one request at most. Default: {MAX_MODEL_LEN}.")
    ] = None,
    even_limited: Annotated[
        bool,
        typer.Option(
            "--even-limited",
            help="Fit loads, too, at which the load tester was the limit. Look at the errors before you believe it.",
        ),
    ] = False,
    check_runs: Annotated[
        list[Path] | None,
        typer.Option(
            "--check",
            help="The folder of another run on the same machine: its loads are predicted, not fitted. More than once: "
            "several.",
        ),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Fit the speed of an engine to a bench run: the time of a step, by what is in it.

    Prints what the numbers are worth: the same load played on the profile, beside what was measured.
    """
    told = Told(
        name, model, gpu, tensor, pipeline, engine_version, kv_tokens, max_num_seqs, max_num_batched_tokens, block_size,
        max_model_len,
    )  # fmt: skip
    if run_dir is None:
        if check_runs:
            raise UsageError("--check compares with a profile that is fitted: give the folder of that run, too")
        profile = modelled(told)
        out.write_text(modelled_page(profile))
        if json:
            print_json({"profile": written(profile)})
        else:
            show_modelled(profile)
    else:
        run = read_run(run_dir, even_limited=even_limited)
        found = calibrated(run.measurements, base(run.results, told), run.alone)
        profile = found.profile
        out.write_text(page(found, run.results.about.started_at))
        checked = check(check_runs or [], profile)
        if json:
            print_json(document(found) | {"checked": checked_document(checked)})
        else:
            show(found)
            if checked:
                show_checked(checked)
    notes.print(f"written to {out}")
    if run_dir is not None and profile.error is not None and profile.error > DOUBTFUL:
        notes.print(
            f"The profile misses half of the measured numbers by more than {profile.error:.0%}: measure again, "
            "longer and on an idle machine, before you plan with it.",
            style="yellow",
        )
