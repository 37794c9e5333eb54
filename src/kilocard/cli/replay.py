"""`kilocard replay`: a decision log, played again."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from kilocard.cli.decision_file import decision_lines
from kilocard.cli.output import print_json, results
from kilocard.core.errors import KilocardError
from kilocard.dispatch.replay import Parity, WhatIf, check, what_if


def replay(
    log: Annotated[Path, typer.Argument(help="A file that gateway.record wrote.", show_default=False)],
    policy: Annotated[str | None, typer.Option(help="Also: where would this policy have sent the requests?")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Play a decision log through the dispatcher again, and say whether it decides the same.

    Exit 0: every decision is the same. Exit 1: some are not. With --policy also how many requests would have gone
    elsewhere: of decisions only, since the answers in the log came from the replicas that were chosen then.
    """
    parity = check(decision_lines(log))
    other = None if policy is None else what_if(decision_lines(log), policy)
    if json:
        print_json(asdict(parity) | {"what_if": None if other is None else asdict(other)})
    else:
        _show(parity)
        if other is not None:
            _show_what_if(other)
    if parity.differing:
        raise KilocardError(f"{parity.differing} of {parity.events} events were answered otherwise than in the log")


def _show(parity: Parity) -> None:
    gaps = f", {parity.gaps} gap(s) where events were lost" if parity.gaps else ""
    results.print(
        f"{parity.events} events of {parity.requests} requests, {parity.decisions} decisions{gaps}: "
        + ("all the same" if not parity.differing else f"{parity.differing} events were answered otherwise")
    )
    for case in parity.shown:
        results.print(f"  line {case['line']}: {case['event']}", soft_wrap=True)
        results.print(f"    then {case['recorded']}\n    now  {case['replayed']}", soft_wrap=True)


def _show_what_if(other: WhatIf) -> None:
    share = other.elsewhere / other.sent if other.sent else 0.0
    results.print(
        f"{other.policy}: {other.elsewhere} of {other.sent} requests ({share:.0%}) would have gone elsewhere first, "
        f"{other.not_sent} would have waited or been refused, {other.sent_instead} that did would have been sent"
    )
    for replica, (then, now) in sorted(other.replicas.items()):
        results.print(f"  {replica}: {then} then, {now} with {other.policy}", soft_wrap=True)
