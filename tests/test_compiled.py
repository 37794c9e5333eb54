"""The list of files that mypyc compiles (pyproject.toml): what would only be found by a build of a minute."""

from __future__ import annotations

import ast
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
HOOK = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]["hooks"]
COMPILED: list[str] = HOOK["mypyc"]["include"]


def file_of(module: str) -> str:
    """Of a module of ours, as the list spells it."""
    return f"src/{module.replace('.', '/')}.py"


def bases(path: str) -> list[tuple[str, str]]:
    """(class and its base, the file of ours that the base comes from) for each class in the file."""
    tree = ast.parse((ROOT / path).read_text())
    home = {
        alias.asname or alias.name: node.module
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module is not None and node.module.startswith("kilocard.")
        for alias in node.names
    }
    return [
        (f"{node.name}({base.id})", file_of(home[base.id]))
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
        for base in node.bases
        if isinstance(base, ast.Name) and base.id in home
    ]


def test_the_list_is_in_order_and_names_files_that_exist() -> None:
    assert sorted(COMPILED) == COMPILED
    assert len(set(COMPILED)) == len(COMPILED)
    assert [path for path in COMPILED if not (ROOT / path).is_file()] == []


def test_a_compiled_class_has_no_base_that_is_not_compiled() -> None:
    """mypyc writes C that no compiler takes where a class's __init__ is inherited from plain Python."""
    assert [(path, *each) for path in COMPILED for each in bases(path) if each[1] not in COMPILED] == []


def test_a_class_that_is_not_compiled_has_no_base_that_is() -> None:
    """Python can't inherit from such a class: TypeError when an instance is made."""
    plain = [str(path.relative_to(ROOT)) for path in (ROOT / "src").rglob("*.py")]
    found = [(path, *each) for path in plain if path not in COMPILED for each in bases(path) if each[1] in COMPILED]
    assert found == []
