"""Conversations: a system prompt that many share, a history that grows, a person who reads before answering."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count, islice, takewhile
from random import Random

from kilocard.core.errors import UsageError
from kilocard.workload.arrivals import Arrivals
from kilocard.workload.lengths import Length
from kilocard.workload.request import WorkloadRequest


@dataclass(frozen=True, slots=True)
class Chat:
    """Lengths are tokens. A turn's input is the system prompt, all that was said before, and its question."""

    question: Length
    answer: Length
    turns: Length
    #: mean seconds between the end of an answer and the next question (exponential)
    think_s: float = 10.0
    system_tokens: int = 0
    #: how many different system prompts there are; a session has one of them, each equally often
    system_prompts: int = 1
    #: a session ends before its input and answer would be longer
    max_tokens: int | None = None
    block_tokens: int = 16
    tenant: str | None = None
    model: str | None = None
    priority: str | None = None

    def __post_init__(self) -> None:
        if self.system_tokens < 0 or self.think_s < 0:
            raise UsageError("a chat's system_tokens and think_s are 0 or more")
        if self.system_prompts < 1 or self.block_tokens < 1:
            raise UsageError("a chat's system_prompts and block_tokens are 1 or more")


def sessions(
    chat: Chat,
    starts: Arrivals,
    rng: Random,
    *,
    number: int | None = None,
    duration_s: float | None = None,
) -> Iterator[WorkloadRequest]:
    """Requests in order of at_s: `number` sessions, or those that start before `duration_s`. Endless without either.

    at_s of a later turn takes answers as if they came at once; the sender waits for the real end, and then think_s.
    """
    times = starts.times(Random(rng.getrandbits(64)))  # noqa: S311  # nothing secret is drawn
    inside = Random(rng.getrandbits(64))  # noqa: S311  # nothing secret is drawn
    if duration_s is not None:
        times = takewhile(lambda at_s: at_s < duration_s, times)
    systems = chat.system_tokens // chat.block_tokens
    # System prompts have the first ids; everything said later gets the next free ones.
    fresh = count(systems * chat.system_prompts)
    ahead: list[tuple[float, int, _Session]] = []
    for name, at_s in enumerate(islice(times, number)):
        while ahead and ahead[0][0] <= at_s:
            yield from _next(ahead, chat, inside, fresh)
        prompt = inside.randrange(chat.system_prompts)
        blocks = list(range(prompt * systems, (prompt + 1) * systems))
        turns = chat.turns.draw(inside)
        session = _Session(f"s{name}", turns, chat.system_tokens, blocks)
        heapq.heappush(ahead, (at_s, name, session))
    while ahead:
        yield from _next(ahead, chat, inside, fresh)


@dataclass(slots=True)
class _Session:
    name: str
    turns: int
    #: tokens said so far, system prompt included
    history: int
    blocks: list[int]
    turn: int = 0
    think_s: float = 0.0


def _next(
    ahead: list[tuple[float, int, _Session]], chat: Chat, rng: Random, fresh: count[int]
) -> Iterator[WorkloadRequest]:
    """The earliest turn of all; the session's next one takes its place."""
    at_s, place, session = heapq.heappop(ahead)
    question, answer = chat.question.draw(rng), chat.answer.draw(rng)
    asked = session.history + question
    if chat.max_tokens is not None and asked + answer > chat.max_tokens:
        if session.turn == 0:
            raise UsageError(
                f"a first turn of {asked} + {answer} tokens is longer than max_tokens {chat.max_tokens} allows"
            )
        return
    # Whole blocks of the input; those that were partial or not yet said a turn ago are new.
    session.blocks += islice(fresh, asked // chat.block_tokens - len(session.blocks))
    yield WorkloadRequest(
        at_s,
        asked,
        answer,
        session=session.name,
        turn=session.turn,
        think_s=session.think_s,
        blocks=tuple(session.blocks),
        block_tokens=chat.block_tokens,
        tenant=chat.tenant,
        model=chat.model,
        priority=chat.priority,
    )
    session.history = asked + answer
    session.turn += 1
    if session.turn < session.turns:
        session.think_s = rng.expovariate(1 / chat.think_s) if chat.think_s else 0.0
        heapq.heappush(ahead, (at_s + session.think_s, place, session))
