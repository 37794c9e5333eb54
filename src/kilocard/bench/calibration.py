"""How many tokens a server makes of our words. Pure: questions out, counts in.

A generator yields texts to count and is sent the server's counts; `prompt_counter.py` asks the server. Texts are
what the user says; the counts are of the whole prompt, chat template included, as `usage.prompt_tokens` has it.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace
from random import Random

from kilocard.bench.words import WORDS

#: asks for the count of a text, is answered with it
Questions = Generator[str, int, "Calibration"]

#: words of the short text; with all words as the long one the difference shows the cost of a word
SHORT = 8
#: so many one-token words are enough for distinct prompts: a nonce of 16 of them has 80 bits
ENOUGH = 32
#: counts that finding the one-token words may cost
MOST_QUESTIONS = 48
#: how far from the asked length a prompt may be, as a share
TOLERANCE = 0.01
_CORRECTIONS = 3


@dataclass(frozen=True, slots=True)
class Calibration:
    """tokens of a prompt = overhead + tokens_per_word × words."""

    words: tuple[str, ...]
    tokens_per_word: float
    #: the chat template's tokens and special ones
    overhead: float
    #: each word was seen to be one token
    exact: bool = True

    @property
    def shortest(self) -> int:
        """Tokens of a prompt of one word."""
        return round(self.overhead + self.tokens_per_word)

    def words_for(self, tokens: int) -> int:
        """Words of the prompt that comes nearest to `tokens`; never none."""
        return max(1, round((tokens - self.overhead) / self.tokens_per_word))


def calibrate(rng: Random, words: Sequence[str] = WORDS) -> Questions:
    """Two lengths give the cost of a word and what the template adds; a third text confirms it."""
    shuffled = rng.sample(words, len(words))
    short, long = shuffled[:SHORT], shuffled
    # Had the short text all words of more than one token, they would look like the template: none of its words here.
    third = rng.choices(shuffled[SHORT:], k=len(words) // 2)
    few = yield " ".join(short)
    many = yield " ".join(long)
    overhead = few - SHORT
    if many - overhead == len(long) and (yield " ".join(third)) == overhead + len(third):
        return Calibration(tuple(words), 1.0, overhead)
    return (yield from _sort_out(rng, shuffled, many))


def correct(calibration: Calibration, tokens: int, rng: Random) -> Questions:
    """Look at prompts of `tokens` tokens, and move the overhead until they are right or it does not help."""
    if tokens <= calibration.shortest:
        return calibration
    for _ in range(_CORRECTIONS):
        count = calibration.words_for(tokens)
        got = yield " ".join(rng.choices(calibration.words, k=count))
        off = got - tokens
        if abs(off) <= calibration.tokens_per_word / 2:
            break
        calibration = replace(calibration, overhead=calibration.overhead + off, exact=False)
    return calibration


def _sort_out(rng: Random, words: Sequence[str], many: int) -> Questions:
    """Some words are more than one token: find those that are one, by halving. Else the mean cost of all of them."""
    half = len(words) // 2
    left, right = words[:half], words[half:]
    counts = {}
    for part in (left, right):
        counts[len(part), part[0]] = yield " ".join(part)
    # The template is in each of the three counts once.
    overhead = sum(counts.values()) - many
    questions = 2
    good: list[str] = []
    todo = [left, right]
    while todo:
        part = todo.pop(0)  # breadth first: large good groups are found before the questions run out
        key = len(part), part[0]
        if key not in counts:
            if questions >= MOST_QUESTIONS:
                break
            counts[key] = yield " ".join(part)
            questions += 1
        if counts[key] - overhead == len(part):
            good += part
        elif len(part) > 1:
            todo += [part[: len(part) // 2], part[len(part) // 2 :]]
    if len(good) >= ENOUGH:
        found = Calibration(tuple(good), 1.0, overhead)
        text = rng.choices(good, k=len(words) // 2)
        if (yield " ".join(text)) == overhead + len(text):
            return found
    return Calibration(tuple(words), max(many - overhead, 1) / len(words), overhead, exact=False)
