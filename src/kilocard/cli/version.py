"""`kilocard version`."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as installed

import typer

from kilocard import __version__
from kilocard.cli.output import print_json
from kilocard.dispatch import dispatcher


def version(json: bool = typer.Option(False, "--json", help="Print one JSON document.")) -> None:
    """Print the version of kilocard and of the parts it runs on."""
    parts = {"kilocard": __version__, "python": platform.python_version(), "hot path": _hot_path()}
    for name in ("uvloop", "httptools", "msgspec", "xllamacpp"):
        try:
            parts[name] = installed(name)
        except PackageNotFoundError:
            parts[name] = "not installed"
    if json:
        print_json(parts)
    else:
        typer.echo(f"kilocard {__version__}")
        for name, number in list(parts.items())[1:]:
            typer.echo(f"  {name} {number}")


def _hot_path() -> str:
    """Whether scripts/install-compiled made this installation."""
    return "Python" if dispatcher.__file__.endswith(".py") else "compiled"
