"""`kilocard`: the commands, and the one place where errors become exit codes."""

from __future__ import annotations

import sys

from kilocard.cli.commands import LazyGroup, program
from kilocard.core.errors import KilocardError

HELP = """Serve your own language models from one GPU to a thousand.

One OpenAI-compatible address in front of vLLM, SGLang, TensorRT-LLM, llama.cpp, Ollama and others, which knows what
each replica is doing.

Begin with `kilocard up`: a whole cluster on this machine, with real answers where the extra `local` is installed.
"""

app = program(name="kilocard", help=HELP, no_args_is_help=True, cls=LazyGroup)


@app.callback()
def _kilocard() -> None:
    """The group itself does nothing; its help is HELP."""


def main() -> None:
    """Exit 0: fine; 1: findings or failure; 2: usage or bad input (typer's own errors included)."""
    try:
        app()
    except KilocardError as error:
        print(f"kilocard: {error.message}", file=sys.stderr)
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
