"""kilocard model fetch | list | path: the small default model on this machine."""

from __future__ import annotations

import json
import sys
from typing import Annotated

import typer

from kilocard.backends import models
from kilocard.core.errors import BackendError

app = typer.Typer(no_args_is_help=True, help="The small default model: fetch it, find it.")
Json = Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")]


def _facts() -> dict[str, object]:
    model = models.DEFAULT
    return {
        "name": model.name,
        "path": str(models.path()),
        "fetched": models.is_fetched(),
        "size_bytes": model.size,
        "context_tokens": model.context,
        "sha256": model.sha256,
        "licence": model.licence,
    }


@app.command()
def fetch(as_json: Json = False) -> None:
    """Download the default model (93 MB) unless it is here, and check it against its pinned hash."""
    file = models.fetch(progress=sys.stderr)
    if not models.verify():
        raise BackendError(f"{file} is not the pinned file any more (its hash differs): delete it and fetch again")
    print(json.dumps(_facts()) if as_json else file)


@app.command("list")
def list_models(as_json: Json = False) -> None:
    """Models that kilocard can fetch by itself, and whether they are here."""
    facts = _facts()
    if as_json:
        print(json.dumps({"models": [facts]}))
        return
    state = f"in {facts['path']}" if facts["fetched"] else "not fetched (kilocard model fetch)"
    print(f"{facts['name']}  {models.DEFAULT.size / 1e6:.0f} MB  {facts['licence']}  {state}")


@app.command()
def path() -> None:
    """Where the default model's file is; a failure if it is not fetched yet."""
    if not models.is_fetched():
        raise BackendError(f"not fetched yet: run `kilocard model fetch` (it will be {models.path()})")
    print(models.path())
