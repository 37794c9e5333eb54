"""JSON Schema of the cluster file, for editors and for tools that write such files."""

from __future__ import annotations

from typing import Any

from kilocard.spec.kinds import FROM_ENVIRONMENT
from kilocard.spec.table import cluster_section
from kilocard.spec.vocabulary import ENGINES


def json_schema(engines: frozenset[str] = ENGINES) -> dict[str, Any]:
    """JSON Schema 2020-12 of a cluster file.

    Good for completion and for most mistakes; what only the parser knows (references between parts, ranges that
    contradict each other) it lets pass. It is stricter in one thing: null for "the default" is not offered.
    """
    definitions: dict[str, Any] = {}
    body = cluster_section(engines).body(definitions)
    body["properties"] = {
        "extends": {
            "type": "string",
            "description": "Another cluster file, relative to this one, that this one changes.",
        },
        **body["properties"],
    }
    # A file that extends another may leave the pools to it.
    body["anyOf"] = [{"required": ["extends"]}, {"required": body.pop("required")}]
    name = FROM_ENVIRONMENT["$ref"].rpartition("/")[2]
    definitions[name] = {
        "description": "A value from the environment: ${NAME} or ${NAME:-default}.",
        "type": "string",
        "pattern": r"\$\{[A-Za-z_][A-Za-z0-9_]*(:-[^{}]*)?\}",
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "kilocard cluster file",
        **body,
        "$defs": definitions,
    }
