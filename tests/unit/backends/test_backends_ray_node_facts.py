"""Versions from the names of folders, without starting anything."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

from kilocard.backends.ray import node_facts


def environment(folder: Path, *dists: str) -> Path:
    """A virtual environment with a program `engine` and these distributions."""
    for dist in dists:
        (folder / f"lib/python3.12/site-packages/{dist}.dist-info").mkdir(parents=True)
    (folder / "bin").mkdir()
    program = folder / "bin/engine"
    program.write_text(f"#!{folder}/bin/python3\nprint()\n")
    program.chmod(0o755)
    return program


def test_the_versions_are_those_of_the_programs_own_environment(tmp_path: Path) -> None:
    program = environment(tmp_path, "vllm-0.32.0+cu129", "torch-2.13.0", "nvidia_nccl_cu12-2.27.5", "requests-2.32.0")
    assert node_facts.engine_versions(str(program), "vllm") == {
        "vllm": "0.32.0+cu129",
        "torch": "2.13.0",
        "nvidia-nccl-cu12": "2.27.5",
    }


def test_what_is_not_there_is_said_and_what_can_not_be_told_is_left_out(tmp_path: Path) -> None:
    assert node_facts.engine_versions(str(tmp_path / "nothing"), "vllm") == {"vllm": "not installed"}
    program = environment(tmp_path, "requests-2.32.0")
    assert node_facts.engine_versions(str(program), "vllm") == {}


def test_this_machine(tmp_path: Path) -> None:
    versions, engines = node_facts.gather({"p": (str(environment(tmp_path, "vllm-1.0")), "vllm"), "q": ("x", None)})
    assert versions["python"] == ".".join(map(str, sys.version_info[:3]))
    assert versions["kilocard"]
    assert engines == {"p": {"vllm": "1.0"}, "q": {}}


def test_it_needs_nothing_but_the_standard_library() -> None:
    """It runs on nodes where kilocard is missing, to say so."""
    tree = ast.parse(Path(node_facts.__file__).read_text())
    top = {name.name for node in tree.body if isinstance(node, ast.Import) for name in node.names}
    top |= {str(node.module).partition(".")[0] for node in tree.body if isinstance(node, ast.ImportFrom)}
    assert top - {"__future__"} <= sys.stdlib_module_names
