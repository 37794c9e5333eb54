"""`kilocard keys`: API keys for tenants."""

from __future__ import annotations

import hashlib
import secrets
from typing import Annotated

import typer

from kilocard.cli.output import notes, print_json

app = typer.Typer(no_args_is_help=True, help="API keys for tenants: shown once, stored only as hashes.")


@app.callback()
def keys() -> None:
    """API keys for tenants: shown once, stored only as hashes."""


@app.command()
def create(
    tenant: Annotated[str, typer.Argument(help="Name of the tenant, for the lines to paste.")],
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Make a new key. It is printed once; the cluster file gets its hash only."""
    key = "kc-" + secrets.token_urlsafe(32)
    digest = "sha256:" + hashlib.sha256(key.encode()).hexdigest()
    if json:
        print_json({"tenant": tenant, "key": key, "hash": digest})
        return
    print(key)
    notes.print("That is the key; it is not shown again. For the cluster file:\n", highlight=False)
    notes.print(f'tenants:\n  {tenant}:\n    keys: ["{digest}"]', markup=False, soft_wrap=True)
