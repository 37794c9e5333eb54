"""The house: floors, rooms, what each may import. The table is the design; the tests hold the code to it."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

SRC = Path(__file__).parent.parent / "src" / "kilocard"
HARD_LIMIT = 500
SOFT_LIMIT = 300
BANNED_NAMES = {"utils", "util", "common", "helpers", "helper", "misc"}


@dataclass(frozen=True)
class Room:
    floor: int
    pure: bool
    rooms: frozenset[str]
    third_party: frozenset[str] = frozenset()


def room(floor: int, rooms: str = "", third_party: str = "", *, pure: bool = False) -> Room:
    return Room(floor, pure, frozenset(rooms.split()), frozenset(third_party.split()))


# room: (floor, rooms it may import, third-party packages it may import)
HOUSE = {
    "core": room(0, pure=True),
    "spec": room(1, "core", "yaml", pure=True),
    # httptools (llhttp) is a parser of bytes: no I/O of its own
    "wire": room(1, "core", "msgspec httptools", pure=True),
    "metrics": room(1, "core", pure=True),
    "perf": room(1, "core", pure=True),
    "workload": room(1, "core", pure=True),
    "engines": room(2, "core spec metrics", pure=True),
    "routing": room(2, "core", pure=True),
    # asyncio shells of HTTP/1.1 shared by scrape, backends, the admin listener and the emulator
    "net": room(2, "core wire", "httptools uvloop"),
    "tenancy": room(2, "core spec", pure=True),
    "scaling": room(2, "core spec", pure=True),
    "dispatch": room(3, "core spec routing", pure=True),
    # a cluster file written out for other programs; `yaml` turns values into text
    "deploy": room(3, "core spec engines metrics", "yaml", pure=True),
    "scrape": room(3, "core metrics engines net spec"),
    # where tenancy's keys, counts and records are kept: SQLite, files, Redis, PostgreSQL, key sets of issuers
    "stores": room(3, "core spec tenancy net", "msgspec psycopg jwt"),
    "sim": room(4, "core spec engines perf workload routing scaling dispatch", pure=True),
    "gateway": room(
        4, "core spec wire metrics engines dispatch scrape net tenancy", "uvloop httptools msgspec opentelemetry"
    ),
    "backends": room(4, "core spec engines net", "xllamacpp ray"),
    # it reads the engines' own gauges beside its own clock, by the names that engines/ knows
    "bench": room(4, "core wire metrics perf workload engines net", "httptools msgspec uvloop"),
    "planner": room(5, "core spec engines perf workload sim", pure=True),
    "emulator": room(5, "core wire perf sim metrics net", "msgspec"),
    # several gateway processes on one port: supervisor, link between the processes
    "workers": room(5, "core spec wire metrics engines dispatch scrape net tenancy stores gateway", "msgspec uvloop"),
    # the loop that keeps replica counts, over a backend and what gateways tell
    "controller": room(5, "core spec metrics net scaling backends", "msgspec"),
    "cli": room(
        6,
        "core spec wire metrics perf workload engines routing scaling net tenancy dispatch deploy scrape stores sim "
        "gateway backends bench planner emulator workers controller",
        "typer rich uvloop msgspec yaml",
    ),
}

# Modules of the standard library that a pure room may not touch: clocks, chance, sockets, files, processes, logs.
IMPURE_STDLIB = {
    "asyncio", "datetime", "http", "io", "logging", "multiprocessing", "os", "pathlib", "secrets", "select",
    "selectors", "shutil", "signal", "socket", "ssl", "subprocess", "sys", "tempfile", "threading", "time",
    "urllib", "uuid",
}  # fmt: skip

# (file, module): a reason
PURITY_EXEMPTIONS = {
    ("spec/load.py", "pathlib"): "load.py alone opens files (design)",
}
# Pure rooms may name random.Random as a type; they may not call the module's own functions.
RANDOM_OK = {"Random"}

# file: why it may pass the soft limit of 300 lines (the hard limit of 500 has no exemptions)
LONG_FILES: dict[str, str] = {
    "gateway/exchange.py": "one request's life; a state and the callbacks that change it are read together",
    "gateway/upstream.py": "one connection's callbacks; what each leaves behind the next one reads",
    "dispatch/dispatcher.py": "one handler for each event; what they decide is in files of its own",
    "gateway/plane.py": "all state of one gateway process, and who may change it",
    "sim/scheduler.py": "what one step decides, in vLLM's order; one method uses what the one before it left",
}


def files() -> list[Path]:
    return sorted(SRC.rglob("*.py"))


def imports(tree: ast.AST) -> Iterator[tuple[str, int]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, node.lineno
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"relative import in line {node.lineno}: write kilocard.room.module"
            module = node.module or ""
            if module == "kilocard":
                for alias in node.names:
                    yield f"kilocard.{alias.name}", node.lineno
            else:
                yield module, node.lineno


def relative(path: Path) -> str:
    return path.relative_to(SRC).as_posix()


def in_a_room(path: Path) -> str | None:
    parts = path.relative_to(SRC).parts
    return parts[0] if len(parts) > 1 else None


@pytest.mark.parametrize("path", files(), ids=relative)
def test_imports_follow_the_table(path: Path) -> None:
    name = in_a_room(path)
    if name is None:
        assert path.name in {"__init__.py", "__main__.py"}, f"{path.name} stands outside every room"
        return
    assert name in HOUSE, f"room {name}/ is not in the table"
    here = HOUSE[name]
    for module, line in imports(ast.parse(path.read_text())):
        top, _, rest = module.partition(".")
        where = f"{relative(path)}:{line}: import of {module}"
        if top == "kilocard":
            other = rest.partition(".")[0]
            if other in {"", "__version__", name}:
                continue
            assert other in here.rooms, f"{where}: {name}/ may import only {sorted(here.rooms)}"
        elif top in sys.stdlib_module_names:
            if here.pure and top in IMPURE_STDLIB:
                assert (relative(path), top) in PURITY_EXEMPTIONS, f"{where}: {name}/ is pure"
        else:
            assert top in here.third_party, f"{where}: {name}/ may use only {sorted(here.third_party)}"


def test_a_room_imports_only_from_lower_floors() -> None:
    for name, here in HOUSE.items():
        for other in here.rooms:
            assert HOUSE[other].floor < here.floor, f"{name} (floor {here.floor}) may not import {other}"
            assert not here.pure or HOUSE[other].pure, f"pure room {name} may not import {other}, which is not"


@pytest.mark.parametrize("path", [p for p in files() if (n := in_a_room(p)) and HOUSE[n].pure], ids=relative)
def test_pure_rooms_have_no_async_and_no_chance_of_their_own(path: Path) -> None:
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        assert not isinstance(node, ast.AsyncFunctionDef | ast.Await), f"{relative(path)}: async in a pure room"
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "open":
            assert relative(path) == "spec/load.py", f"{relative(path)}:{node.lineno}: opens a file"
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "random":
            assert node.attr in RANDOM_OK, f"{relative(path)}:{node.lineno}: random.{node.attr}: take rng instead"


@pytest.mark.parametrize("path", files(), ids=relative)
def test_size(path: Path) -> None:
    lines = len(path.read_text().splitlines())
    assert lines <= HARD_LIMIT, f"{relative(path)} has {lines} lines: split it"
    if lines > SOFT_LIMIT:
        assert LONG_FILES.get(relative(path)), f"{relative(path)} has {lines} lines: split it or say why not"


def test_long_file_list_has_no_stale_entries() -> None:
    for name in LONG_FILES:
        assert len((SRC / name).read_text().splitlines()) > SOFT_LIMIT, f"{name} is short now: drop its entry"


def test_no_drawer_names() -> None:
    for path in [*SRC.rglob("*"), *Path(__file__).parent.rglob("*.py")]:
        assert path.stem.lower() not in BANNED_NAMES, f"{path}: name what is in it"


def test_each_room_says_what_it_is_for() -> None:
    for name in HOUSE:
        doc = ast.get_docstring(ast.parse((SRC / name / "__init__.py").read_text()))
        assert doc and len(doc) > 40, f"{name}/__init__.py needs a paragraph"


def test_only_the_engines_room_spells_engine_names() -> None:
    """Anywhere else a branch on an engine's name is a capability that is missing from engines/base.py."""
    names = {"vllm", "sglang", "trtllm", "llamacpp", "ollama", "transformers", "emulated", "external"}
    for path in files():
        if in_a_room(path) in {"engines", "cli", None}:
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Compare):
                for side in [node.left, *node.comparators]:
                    assert not (isinstance(side, ast.Constant) and side.value in names), (
                        f"{relative(path)}:{node.lineno}: compares with an engine's name"
                    )


def test_every_ignore_has_a_reason() -> None:
    for path in files():
        for number, text in enumerate(path.read_text().splitlines(), 1):
            for marker in ("# noqa", "# type: ignore"):
                if marker in text:
                    after = text.split(marker, 1)[1]
                    assert "[" in after or ":" in after, f"{relative(path)}:{number}: bare {marker}"
                    assert after.count("#") >= 1, f"{relative(path)}:{number}: give the reason after a second #"
