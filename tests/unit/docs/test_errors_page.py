"""docs/reference/errors.md lists each code that the program uses, and no other."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from markdown_pages import ROOT

from kilocard.core import errors
from kilocard.core.errors import KilocardError
from kilocard.dispatch.config import RETRY_AFTER
from kilocard.dispatch.events import Fault
from kilocard.tenancy.limits import KINDS, REQUEST_EXCEEDS_LIMIT

PAGE = (ROOT / "docs" / "reference" / "errors.md").read_text()
LISTED = set(re.findall(r"^\| `([a-z0-9_]+)` \|", PAGE, re.MULTILINE))
CODES = {"code", "default_code"}


def used() -> Iterator[str]:
    """Codes as they stand in src/: arguments `code=…`, assignments to `code` and `default_code`, and the tables."""
    for path in (ROOT / "src" / "kilocard").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call):
                for keyword in node.keywords:
                    if keyword.arg == "code":
                        yield from texts(keyword.value)
            elif isinstance(node, ast.Assign):
                names = {target.id for target in node.targets if isinstance(target, ast.Name)}
                if names & CODES:
                    yield from texts(node.value)
            elif isinstance(node, ast.AnnAssign) and getattr(node.target, "id", "") in CODES and node.value is not None:
                yield from texts(node.value)
    yield from RETRY_AFTER
    yield from (*KINDS, REQUEST_EXCEEDS_LIMIT)
    yield from (fault.value for fault in Fault)


def texts(node: ast.expr) -> Iterator[str]:
    """Constant strings that an expression can be, keys of tables and conditions left out."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    elif isinstance(node, ast.IfExp):
        yield from texts(node.body)
        yield from texts(node.orelse)
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.Dict):
        for value in [*node.func.value.values, *node.args[1:]]:
            yield from texts(value)


def test_each_code_in_use_is_listed() -> None:
    missing = set(used()) - LISTED
    assert not missing, f"add {sorted(missing)} to scripts/docs_pages/errors.py and run scripts/generate-docs"


def test_no_code_is_listed_that_nobody_uses() -> None:
    spare = LISTED - set(used())
    assert not spare, f"take {sorted(spare)} out of scripts/docs_pages/errors.py"


def test_each_class_is_listed() -> None:
    for kind in vars(errors).values():
        if isinstance(kind, type) and issubclass(kind, KilocardError):
            assert f"`{kind.__name__}` | {kind.http_status} | {kind.exit_code} |" in PAGE
