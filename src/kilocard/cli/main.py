"""`kilocard`: the commands, and the one place where errors become exit codes."""

from __future__ import annotations

import sys

import typer

from kilocard.cli import bench, gateway, replay, schema, status, up, usage, version
from kilocard.cli.calibrate import calibrate
from kilocard.cli.emulate import emulate
from kilocard.cli.engines import engines
from kilocard.cli.keys import app as keys
from kilocard.cli.model import app as model
from kilocard.cli.plan import plan_command
from kilocard.cli.render import render
from kilocard.cli.simulate import simulate
from kilocard.core.errors import KilocardError

HELP = """Serve your own language models from one GPU to a thousand.

One OpenAI-compatible address in front of vLLM, SGLang, TensorRT-LLM, llama.cpp, Ollama and others, which knows what
each replica is doing.

Begin with `kilocard up`: a whole cluster on this machine, with real answers where the extra `local` is installed.
"""

app = typer.Typer(
    name="kilocard",
    help=HELP,
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
app.command()(up.up)
app.command()(gateway.gateway)
app.command()(emulate)
app.command()(bench.bench)
app.command()(calibrate)
app.command()(status.status)
app.command()(usage.usage)
app.command()(replay.replay)
app.add_typer(model, name="model")
app.add_typer(keys, name="keys")
app.command("plan")(plan_command)
app.command()(simulate)
app.command()(render)
app.command()(engines)
app.command()(schema.schema)
app.command()(version.version)


def main() -> None:
    """Exit 0: fine; 1: findings or failure; 2: usage or bad input (typer's own errors included)."""
    try:
        app()
    except KilocardError as error:
        print(f"kilocard: {error.message}", file=sys.stderr)
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
