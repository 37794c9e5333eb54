"""The gateway's books beside what its clients saw. Pure: rows and lines in, sentences about what is wrong out."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from benchmarks.soak.cast import OWNER
from benchmarks.soak.results import End, Sent


class Row(NamedTuple):
    """One of the ledger. Times are Unix seconds."""

    request_id: str
    started: float
    ended: float
    tenant: str
    model: str
    pool: str
    prompt_tokens: int
    output_tokens: int
    estimated: bool
    held: float
    outcome: str
    status: int | None

    @property
    def tokens(self) -> int:
        return self.prompt_tokens + self.output_tokens

    @property
    def known_tokens(self) -> int:
        """Without a prompt that no engine came to count: it is charged by its bytes, maybe more than was reserved."""
        return self.output_tokens if self.estimated else self.tokens

    @property
    def counts(self) -> bool:
        """Under limits per minute: those that failed before any content cost nothing."""
        return self.outcome == "ok" or self.tokens > 0


class Line(NamedTuple):
    """One of the access log, as far as it is compared."""

    request_id: str
    status: int
    outcome: str
    tokens: tuple[int, int]


def read_access_log(lines: Iterable[bytes], forbidden: Sequence[bytes]) -> tuple[dict[str, list[Line]], list[str]]:
    """Lines by the id that the client had sent, and what is wrong with them.

    `forbidden`: what no log may have in it, such as keys and prompts.
    """
    found: dict[str, list[Line]] = {}
    violations = []
    for number, text in enumerate(lines, 1):
        if any(word in text for word in forbidden):
            violations.append(f"access log, line {number}: it has a key or a prompt in it")
        try:
            line = json.loads(text)
            read = Line(
                line["request_id"], line["status"] or 0, line["outcome"],
                (line["prompt_tokens"], line["output_tokens"]),
            )  # fmt: skip
            found.setdefault(line["client_request_id"], []).append(read)
        except (ValueError, KeyError, TypeError) as error:
            violations.append(f"access log, line {number}: {error!r} in {text[:100]!r}")
    return found, violations


def judge_books(
    sent: Iterable[Sent], log: Mapping[str, Sequence[Line]], rows: Mapping[str, Row], lost: Callable[[float], bool]
) -> Iterator[str]:
    """Every request that was answered has one line and one row, which say what its client saw.

    `rows` by request id. `lost`: may what ended at that time have died with its worker before it was written?
    """
    for one in sent:
        if not one.id:
            continue
        lines = log.get(one.id, ())
        if len(lines) > 1:
            yield f"{one.id}: {len(lines)} lines in the access log"
        answered = one.end is End.OK or (one.end is End.ERROR and one.status > 0) or one.end is End.REFUSED
        if not lines:
            if answered and not lost(one.ended):
                yield f"{one.id}: {one.end} {one.status}, but not in the access log"
            continue
        line = lines[0]
        row = rows.get(line.request_id)
        if row is None:
            if one.end is End.OK and one.status == 200 and not lost(one.ended):
                yield f"{one.id}: answered, but not in the ledger as {line.request_id}"
            continue
        if row.tenant != one.tenant:
            yield f"{one.id}: on {row.tenant}'s account"
        if (row.prompt_tokens, row.output_tokens) != line.tokens:
            yield f"{one.id}: the log has {line.tokens} tokens, the ledger {row.prompt_tokens, row.output_tokens}"
        if one.end is End.OK and one.status == 200:
            if row.outcome != "ok":
                yield f"{one.id}: answered, but {row.outcome} in the ledger"
            if one.prompt_tokens >= 0 and one.prompt_tokens != row.prompt_tokens:
                yield f"{one.id}: {one.prompt_tokens} prompt tokens, {row.prompt_tokens} in the ledger"
            if one.output_tokens >= 0 and one.output_tokens != row.output_tokens:
                yield f"{one.id}: {one.output_tokens} output tokens, {row.output_tokens} in the ledger"
            if row.estimated:
                yield f"{one.id}: the engine said what it used, but the ledger has an estimate"


def judge_pools(rows: Iterable[Row]) -> Iterator[str]:
    """The exclusive pool is its owner's, and its owner's only one."""
    for row in rows:
        if row.pool and (row.pool == "own") != (row.tenant == OWNER):
            yield f"{row.request_id} of {row.tenant} was on pool {row.pool}"


class Sums(NamedTuple):
    requests: int
    prompt_tokens: int
    output_tokens: int


def sums(rows: Iterable[Row]) -> dict[str, Sums]:
    """By tenant."""
    requests: Counter[str] = Counter()
    prompt: Counter[str] = Counter()
    output: Counter[str] = Counter()
    for row in rows:
        requests[row.tenant] += 1
        prompt[row.tenant] += row.prompt_tokens
        output[row.tenant] += row.output_tokens
    return {name: Sums(requests[name], prompt[name], output[name]) for name in requests}
