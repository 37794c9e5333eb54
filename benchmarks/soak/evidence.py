"""What the gateway has written, read when it has ended: ledger, access log, decision logs, all logs for secrets."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.soak.books import Row, Sums
from benchmarks.soak.cluster import KILOCARD
from benchmarks.soak.files import Layout

#: files of the run that name keys and prompts, since they are the clients' or say only hashes
_OURS = {"sent.tsv"}


def ledger(path: Path) -> list[Row]:
    with contextlib.closing(sqlite3.connect(path)) as database:
        names = ", ".join(Row._fields).replace("held,", "held_s,")
        return [
            Row(*row)._replace(estimated=bool(row[Row._fields.index("estimated")]))
            for row in database.execute(f"SELECT {names} FROM kilocard_usage ORDER BY seq")
        ]


def lines(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        yield from file


async def _kilocard(*words: str) -> tuple[int, str, str]:
    process = await asyncio.create_subprocess_exec(
        *KILOCARD, *words, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    out, err = await process.communicate()
    return process.returncode or 0, out.decode(), err.decode()


async def reported(layout: Layout) -> dict[str, Sums]:
    """What `kilocard usage` says, by tenant."""
    code, out, err = await _kilocard("usage", "--store", str(layout.store), "--by", "tenant", "--json")
    if code:
        raise RuntimeError(f"kilocard usage: {err}")
    return {
        line["tenant"]: Sums(line["requests"], line["prompt_tokens"], line["output_tokens"])
        for line in json.loads(out)["lines"]
    }


async def replayed(layout: Layout) -> tuple[list[str], list[str]]:
    """Every file of the decision log, played again: (what each said, what is wrong)."""
    said = []
    violations = []
    for path in sorted(layout.folder.glob(f"{layout.decisions.name}*")):
        code, out, err = await _kilocard("replay", str(path))
        said.append(f"{path.name}: {out.strip()}")
        if code:
            violations.append(f"replay of {path.name}: {out.strip()} {err.strip()}")
        elif "gap" in out:
            violations.append(f"{path.name} has gaps: {out.strip()}")
    if not said:
        violations.append("there is no decision log")
    return said, violations


def leaks(folder: Path, forbidden: Sequence[bytes]) -> list[str]:
    """Files with a key or a prompt in them."""
    found = []
    longest = max(map(len, forbidden))
    for path in sorted(folder.iterdir()):
        if path.name in _OURS or not path.is_file():
            continue
        tail = b""
        with path.open("rb") as file:
            while block := file.read(1 << 20):
                text = tail + block
                if any(word in text for word in forbidden):
                    found.append(f"{path.name} has a key or a prompt in it")
                    break
                tail = text[-longest:]
    return found
