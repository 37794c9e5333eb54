"""What became of each request, and when."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from enum import StrEnum


class End(StrEnum):
    OK = "ok"
    #: a whole error response, or a stream that ended with an error event
    ERROR = "error"
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
    status: int = 0
    code: str = ""
    #: content events of a stream that had come
    content: int = 0
    stream: bool = False
    detail: str = ""

    def __str__(self) -> str:
        took = f"{self.started:.2f}–{self.ended:.2f} s"
        return f"{self.what} {took}: {self.end} {self.status or ''} {self.code} content={self.content} {self.detail}"


class Results:
    """All of them, counted; those that the verdict looks at one by one are kept."""

    def __init__(self) -> None:
        self.counts: Counter[tuple[str, End]] = Counter()
        self.accepted: Counter[Accepted] = Counter()
        self.ok_accepted = 0
        self.suspects: list[Result] = []

    def add(self, result: Result) -> None:
        self.counts[result.what, result.end] += 1
        self.accepted[result.accepted] += 1
        if result.end is End.OK and result.status == 200:
            self.ok_accepted += 1
        if result.end not in (End.OK, End.LEFT):
            self.suspects.append(result)

    @property
    def total(self) -> int:
        return sum(self.counts.values())
