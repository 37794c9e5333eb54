"""Each command is imported when it is asked for."""

from __future__ import annotations

import subprocess
import sys

import typer
from typer.testing import CliRunner

from kilocard.cli.commands import PLACES
from kilocard.cli.main import app

#: rooms that a small command has no use for
HEAVY = ("kilocard.planner", "kilocard.bench", "kilocard.sim", "kilocard.perf", "kilocard.gateway", "kilocard.backends")


def test_a_command_does_not_import_the_others() -> None:
    program = (
        "import sys; sys.argv = ['kilocard', 'schema']\n"
        "from kilocard.cli.main import main\n"
        "try: main()\nexcept SystemExit: pass\n"
        f"print([name for name in sys.modules if name.startswith({HEAVY!r})], file=sys.stderr)"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout.startswith("{") and ran.stderr == "[]\n"


def test_every_command_of_the_table_is_there_under_its_name() -> None:
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]  # a group, whose type says less
    assert list(commands) == list(PLACES)
    assert [command.name for command in commands.values()] == list(PLACES)


def test_a_slip_of_the_pen_is_answered_with_what_was_meant() -> None:
    answer = CliRunner().invoke(app, ["plna"])
    assert answer.exit_code == 2 and "plan" in answer.output
