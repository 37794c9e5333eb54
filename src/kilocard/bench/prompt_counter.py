"""Puts the questions of calibration.py to the server: by its tokenize page, else by requests of one token."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random

from kilocard.bench.calibration import Calibration, Questions, calibrate, correct
from kilocard.bench.inquiry import Inquiry
from kilocard.bench.server import Server
from kilocard.bench.tokenize_page import ask_tokenize
from kilocard.core.errors import UpstreamError


async def calibrate_prompts(
    server: Server, lengths: Iterable[int], rng: Random, *, seconds: float = 120.0
) -> Calibration:
    """What this server makes of our words, looked at once more at `lengths` (tokens; three of them at most).

    Costs 3 counts and one for each length where words are tokens, up to about 60 where they are not. Raises
    UpstreamError where the server counts no prompt tokens at all.
    """
    wanted = sorted(set(lengths))
    if len(wanted) > 3:
        wanted = [wanted[0], wanted[len(wanted) // 2], wanted[-1]]
    async with Inquiry(server.target, seconds=seconds) as inquiry:
        found = await _answer(inquiry, server, calibrate(rng))
        for tokens in wanted:
            found = await _answer(inquiry, server, correct(found, tokens, rng))
    return found


async def count(inquiry: Inquiry, server: Server, text: str) -> int:
    """Tokens of the prompt that `text` makes, chat template included."""
    if server.tokenize is not None:
        tokens = await ask_tokenize(inquiry, server.tokenize, server.form, text)
        if tokens is not None:
            return tokens
    path = server.target.path
    answer = await inquiry.generate(path, server.form.body(text, 1, stream=False))
    if answer.status != 200:
        raise inquiry.refusal(answer.status, answer.message, path)
    if answer.usage is None or answer.usage.prompt is None:
        raise UpstreamError(
            f"{server.target.url}{path} says no usage.prompt_tokens, so prompts of a given length can't be made for it"
        )
    return answer.usage.prompt


async def _answer(inquiry: Inquiry, server: Server, questions: Questions) -> Calibration:
    try:
        text = next(questions)
        while True:
            text = questions.send(await count(inquiry, server, text))
    except StopIteration as done:
        found: Calibration = done.value
        return found
