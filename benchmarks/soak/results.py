"""What became of each request, and when."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple


class End(StrEnum):
    OK = "ok"
    #: a whole error response, or a stream that ended with an error event
    ERROR = "error"
    #: refused, as it had to be: a limit of this tenant, a key that is revoked, poison
    REFUSED = "refused"
    #: we left before the end
    LEFT = "left"
    #: the gateway cut the connection
    CUT = "cut"
    #: nothing of the above within the deadline
    STUCK = "stuck"
    #: an answer that can't be right; `detail` says why
    WRONG = "wrong"


class Accepted(StrEnum):
    """Does the gateway count it as a request to a model? UNSURE: we left before it answered anything."""

    YES = "yes"
    NO = "no"
    UNSURE = "unsure"


@dataclass(slots=True)
class Result:
    what: str
    started: float
    ended: float
    end: End
    accepted: Accepted
    #: the x-request-id that it was sent with; "": none
    id: str = ""
    tenant: str = ""
    model: str = ""
    status: int = 0
    code: str = ""
    #: content events of a stream that had come
    content: int = 0
    stream: bool = False
    #: what the engine said that it used, or what the request made it use; -1: unknown
    prompt_tokens: int = -1
    output_tokens: int = -1
    detail: str = ""

    def __str__(self) -> str:
        took = f"{self.started:.2f}–{self.ended:.2f} s"
        return (
            f"{self.id} {self.tenant}: {self.what} {took}: {self.end} {self.status or ''} {self.code} "
            f"content={self.content} {self.detail}"
        )


class Sent(NamedTuple):
    """A result as it is kept for the end, when the gateway's books are compared with it. Times are Unix seconds."""

    id: str
    tenant: str
    started: float
    ended: float
    end: End
    accepted: Accepted
    status: int
    prompt_tokens: int
    output_tokens: int


class Results:
    """All of them, counted; those that the verdict looks at one by one are kept, the others go to a file."""

    def __init__(self, file: Path, utc: float) -> None:
        """`utc`: what this process's clock has to be moved by."""
        self.counts: Counter[tuple[str, End]] = Counter()
        self.by_tenant: Counter[tuple[str, End]] = Counter()
        self.accepted: Counter[Accepted] = Counter()
        self.ok_accepted = 0
        self.suspects: list[Result] = []
        self._utc = utc
        self._path = file
        self._file = file.open("w")

    def add(self, result: Result) -> None:
        self.counts[result.what, result.end] += 1
        self.by_tenant[result.tenant, result.end] += 1
        self.accepted[result.accepted] += 1
        if result.end is End.OK and result.status == 200:
            self.ok_accepted += 1
        if result.end not in (End.OK, End.LEFT, End.REFUSED):
            self.suspects.append(result)
        utc = self._utc
        self._file.write(
            f"{result.id}\t{result.tenant}\t{result.started + utc:.6f}\t{result.ended + utc:.6f}\t{result.end}\t"
            f"{result.accepted}\t{result.status}\t{result.prompt_tokens}\t{result.output_tokens}\n"
        )

    def sent(self) -> Iterator[Sent]:
        """Every result, from the file; nothing is added any more."""
        self._file.close()
        with self._path.open() as lines:
            for line in lines:
                id, tenant, started, ended, end, accepted, status, prompt, output = line.rstrip("\n").split("\t")
                yield Sent(
                    id, tenant, float(started), float(ended), End(end), Accepted(accepted), int(status), int(prompt),
                    int(output),
                )  # fmt: skip

    @property
    def total(self) -> int:
        return sum(self.counts.values())
