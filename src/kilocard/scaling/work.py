"""Work in one unit: a token of a prompt. What comes, what is done, what waits."""

from __future__ import annotations

from kilocard.scaling.readings import Change, Readings

#: an answer's token costs a replica about as much as so many of a prompt: on an A100 a 7B model prefills some 10,000
#: tokens a second and decodes some 2,500. It matters only where the mix of long prompts and long answers changes
ANSWER_TOKEN = 4.0
#: seconds over which the mean length of prompts and answers is taken
LENGTHS_S = 300.0
#: rates are taken over so many seconds at least, and longer until so many requests came, or the longest is reached
SHORT_S, LONG_S, ENOUGH = 20.0, 120.0, 60.0


def mean_work(readings: Readings) -> float | None:
    """Of one request. None: nobody came yet."""
    change = readings.over(LENGTHS_S) or readings.over(readings.span_s)
    if change is None or change.arrived <= 0:
        return None
    answer = change.output_tokens / change.finished if change.finished > 0 else 0.0
    return change.prompt_tokens / change.arrived + ANSWER_TOKEN * answer


def done(change: Change) -> float:
    """What replicas did in that time: the prompts of those that were answered, and the answers that ended."""
    prompt = change.prompt_tokens / change.arrived if change.arrived > 0 else 0.0
    return change.answered * prompt + ANSWER_TOKEN * change.output_tokens


def coming(readings: Readings, back: float = 0.0) -> Change | None:
    """The latest stretch in which enough came to tell a rate, `back` seconds ago."""
    seconds = SHORT_S
    found = readings.over(seconds, back)
    while found is not None and found.arrived < ENOUGH and seconds < LONG_S:
        seconds *= 1.5
        longer = readings.over(min(seconds, LONG_S), back)
        if longer is None:
            break
        found = longer
    return found
