"""The commands, each imported when it is asked for: nobody waits for the parts of the others.

`kilocard emulate` needs no planner, and a worker of the gateway no load tester; importing all of them took 0.2 s of
processor time and 7 MiB in every process.
"""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperGroup

#: in the order of `kilocard --help`; module and what in it: a function, or a group of commands
PLACES = {
    "up": "up:up",
    "gateway": "gateway:gateway",
    "control": "control:control",
    "emulate": "emulate:emulate",
    "bench": "bench:bench",
    "calibrate": "calibrate:calibrate",
    "status": "status:status",
    "usage": "usage:usage",
    "replay": "replay:replay",
    "model": "model:app",
    "keys": "keys:app",
    "plan": "plan:plan_command",
    "simulate": "simulate:simulate",
    "render": "render:render",
    "engines": "engines:engines",
    "schema": "schema:schema",
    "version": "version:version",
}

#: of every command
SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


class Commands(MutableMapping[str, Any]):
    """Name → command, as a group of typer's keeps them."""

    def __init__(self) -> None:
        self._loaded: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._loaded:
            self._loaded[name] = _load(name, PLACES[name])
        return self._loaded[name]

    def __setitem__(self, name: str, command: Any) -> None:
        self._loaded[name] = command

    def __delitem__(self, name: str) -> None:
        del self._loaded[name]

    def __contains__(self, name: object) -> bool:  # Mapping's own would import the command
        return name in PLACES

    def __iter__(self) -> Iterator[str]:
        return iter(PLACES)

    def __len__(self) -> int:
        return len(PLACES)


class LazyGroup(TyperGroup):
    """The program itself."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands = Commands()


def _load(name: str, place: str) -> Any:
    module, _, attribute = place.partition(":")
    what = getattr(import_module(f"kilocard.cli.{module}"), attribute)
    app = program()
    if isinstance(what, typer.Typer):
        app.add_typer(what, name=name)
    else:
        app.command(name)(what)
    return typer.main.get_group(app).commands[name]


def program(**settings: Any) -> typer.Typer:
    """An app in our style, with these settings besides."""
    return typer.Typer(
        rich_markup_mode="markdown", pretty_exceptions_enable=False, context_settings=SETTINGS, **settings
    )
