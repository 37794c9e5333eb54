"""`kilocard schema`."""

from __future__ import annotations

from kilocard.cli.output import print_json
from kilocard.spec.schema import json_schema


def schema() -> None:
    """Print the JSON Schema of the cluster file, for editors and reviews.

    With the YAML extension of an editor: `kilocard schema > kilocard.schema.json`, then in the cluster file's first
    line `# yaml-language-server: $schema=kilocard.schema.json`.
    """
    print_json(json_schema())
