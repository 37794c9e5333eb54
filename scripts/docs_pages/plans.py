"""docs/plan-examples.md: golden plans, as `kilocard plan` prints them. docs/plans/plans.yaml says which ones."""

from __future__ import annotations

import contextlib
import shlex
from pathlib import Path
from typing import Any

import yaml
from typer.testing import CliRunner

from kilocard.cli.main import app

TOP = Path(__file__).resolve().parent.parent.parent
FOLDER = "docs/plans"

PAGE = """\
# Plans, worked out

<!-- Written by scripts/generate-docs from docs/plans/plans.yaml. -->

What `kilocard plan` prints today, with what a person checked about each. How it decides: [plan](plan.md).
"""

SECTION = """
## {title}

{review}
```sh
kilocard plan {run}
```

```text
{output}
```
"""


def plans() -> dict[str, str]:
    listed: list[dict[str, Any]] = yaml.safe_load((TOP / FOLDER / "plans.yaml").read_text())
    return {"docs/plan-examples.md": PAGE + "".join(_section(each) for each in listed)}


def _section(each: dict[str, Any]) -> str:
    with contextlib.chdir(TOP):
        found = CliRunner().invoke(app, ["plan", *shlex.split(each["run"])])
    if found.exit_code != 0:
        raise SystemExit(f"docs/plans/plans.yaml: {each['name']} exits {found.exit_code}: {found.exception}")
    output = "\n".join(line.rstrip() for line in found.stdout.rstrip().splitlines())
    return SECTION.format(title=each["title"], review=each["review"], run=each["run"], output=output)
