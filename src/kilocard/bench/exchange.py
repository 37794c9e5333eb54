"""One request on its way, and what to call it when its connection or its time ends before its answer does."""

from __future__ import annotations

from collections.abc import Callable

from kilocard.bench import failures
from kilocard.bench.answer import Answer
from kilocard.bench.ask import Ask
from kilocard.bench.connection import Connection
from kilocard.bench.record import RequestRecord

Done = Callable[[RequestRecord], None]


class Exchange:
    """One ask on its way: the record that it becomes, and who wants to know."""

    __slots__ = ("answer", "ask", "connection", "on_done", "record", "retried", "started_s", "tries")

    def __init__(self, ask: Ask, record: RequestRecord, started_s: float, on_done: Done) -> None:
        self.ask = ask
        self.record = record
        self.started_s = started_s
        self.on_done = on_done
        self.connection: Connection | None = None
        self.answer = Answer(record)
        self.retried = False
        #: addresses of the host that were tried
        self.tries = 0


def broken(answer: Answer, error: OSError | None) -> str:
    reset = error is not None
    if not answer.begun:
        return failures.RESET_BEFORE if reset else failures.CLOSED_BEFORE
    if not answer.arrivals:
        return failures.RESET_NO_TOKEN if reset else failures.CLOSED_NO_TOKEN
    return failures.RESET_IN_STREAM if reset else failures.TRUNCATED


def timed_out(answer: Answer) -> str:
    if not answer.begun:
        return failures.TIMEOUT_BEFORE
    return failures.TIMEOUT_IN_STREAM if answer.arrivals else failures.TIMEOUT_NO_TOKEN
