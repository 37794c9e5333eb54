"""What is wrong with a cluster file: every problem, with its path, its line and what to do."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple

from kilocard.core.errors import SpecError
from kilocard.spec.units import UnitError, show

#: Keys from the top of the document down; whole numbers are places in lists, from 0.
Path = tuple[str | int, ...]
#: A line number (from 1), or "file:line" where more than one file is read.
Line = int | str

#: more than this many problems are counted, not printed
MOST_PRINTED = 200
#: difflib takes 10 µs a pair: a file with thousands of pools and as many misspelt names should not take minutes
MOST_COMPARED = 300


def path_text(path: Path) -> str:
    """`("pools", "a.b", "endpoints", 0)` → `pools."a.b".endpoints[0]`."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            plain = re.fullmatch(r"[A-Za-z0-9_/-]{1,80}", part)
            text += ("." if text else "") + (part if plain else show(part))
    return text or "cluster file"


class Problem(NamedTuple):
    """One thing to put right."""

    path: Path
    line: Line | None
    problem: str
    advice: str

    def __str__(self) -> str:
        where = {int: f"line {self.line}: ", str: f"{self.line}: "}.get(type(self.line), "")
        text = f"{where}{path_text(self.path)}: {self.problem}; {self.advice}"
        return " ".join(text.split()).encode("utf-8", "backslashreplace").decode()


def _position(line: Line | None) -> tuple[str, int]:
    file, _, number = str(line or 0).rpartition(":")
    return file, int(number) if number.isdecimal() else 0


class InvalidClusterFile(SpecError):
    """SpecError with its problems as data."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        lines = [str(problem) for problem in self.problems[:MOST_PRINTED]]
        if len(self.problems) > MOST_PRINTED:
            lines.append(f"… and {len(self.problems) - MOST_PRINTED} more problems")
        super().__init__("\n".join(lines))


@contextmanager
def of_another_file() -> Iterator[None]:
    """For what is written like a cluster file and is none: its problems don't call it one."""
    try:
        yield
    except InvalidClusterFile as error:
        raise SpecError(error.message.replace(f": {path_text(())}: ", ": ")) from error


class Problems:
    """Collects problems while a document is read, and knows which paths are spoilt already."""

    def __init__(self, lines: Mapping[Path, Line] | None = None) -> None:
        self._lines = lines or {}
        self._found: list[Problem] = []
        self._spoilt: set[Path] = set()

    def add(self, path: Path, problem: str, advice: str) -> None:
        self._found.append(Problem(path, self._line(path), problem, advice))
        self._spoilt.update(path[:length] for length in range(1, len(path) + 1))

    def add_error(self, path: Path, error: UnitError) -> None:
        """A value that couldn't be read; nothing where the path has a problem already, which then caused this one."""
        if path not in self._spoilt:
            self.add(path, error.problem, error.advice)

    def touches(self, *paths: Path) -> bool:
        """Is there a problem at one of these paths, or beneath? Then what follows from it is not worth saying."""
        return any(path in self._spoilt for path in paths)

    def at(self, path: Path) -> bool:
        """Is there a problem at this very path?"""
        return any(problem.path == path for problem in self._found)

    def _line(self, path: Path) -> Line | None:
        """The line of the path, or of the nearest thing above it that is in the file."""
        for length in range(len(path), 0, -1):
            if (line := self._lines.get(path[:length])) is not None:
                return line
        return None

    def error(self) -> InvalidClusterFile:
        """All problems in the order of the file; those without a line come first."""
        return InvalidClusterFile(sorted(self._found, key=lambda problem: _position(problem.line)))

    def raise_if_any(self) -> None:
        if self._found:
            raise self.error()


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Advice for an unknown word: the nearest known one, or all of them."""
    known = sorted(known)[:MOST_COMPARED]
    folded = {name.lower().replace("-", "_"): name for name in reversed(known)}
    near = difflib.get_close_matches(word[:100].lower().replace("-", "_"), folded, n=1, cutoff=0.6)
    if near:
        return f"did you mean {folded[near[0]]}?"
    if not known:
        return "remove it"
    return f"known are {', '.join(known[:30])}{', …' if len(known) > 30 else ''}"
