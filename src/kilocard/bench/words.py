"""Text whose tokens can be counted without a tokenizer: random words, each one token in nearly every vocabulary.

Every word has three letters, and is one token at the start of a text as well as behind a space, in the vocabularies of
Mistral (SentencePiece as Llama 2, and Tekken), OpenAI (cl100k), Qwen, DeepSeek and SmolLM2. With its space it has 4
bytes, which is also what a token is taken for where nobody counts (wire/tokens.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

_LIST = """
ace act add age ago aid aim air all and any are arm art ask ate bag ban bar bat bay bed beg bet bid big bit bow box
boy bud bug bus but buy can cap car cat cod cup cut dad day did die dig dim din dog dot due ear egg end eye fan far
fat fed fee fin fit fix fly for fun gap gas get got had ham has hat hay hen her hey hid him hip his hit hot how hub
hum ice ill ink inn its jam jan jar jet job joy jug key kid kit lab lad lag lap law lay led leg let lid lie lip lit
log lot low man map mat may men met mid net new nor not now nut odd off old one our out owe own pad pan pat pay pen
per pet pie pin pit pot pub put ram ran rap rat raw ray red rib rid rig rim rip rod rot row rub rug run sat say sea
see set she sit six ski sky son sum sun tab tag tan tax ten the tip tom ton too top try two use van vet via was way
web wed who why win won yes yet you zip
"""
WORDS = tuple(_LIST.split())

#: words of one ready-made piece of text
PIECE = 16
#: ready-made pieces: prompts of 1,000 words that share a longer stretch than one piece are one in many
_PIECES = 4096


class Text:
    """Random text of `words`, made quickly: all but the first and last words come in ready-made pieces."""

    def __init__(self, words: Sequence[str], rng: Random) -> None:
        self.words = tuple(words)
        self._pieces = [" ".join(rng.choices(self.words, k=PIECE)) for _ in range(_PIECES)]

    def make(self, count: int, rng: Random) -> str:
        """`count` words. The first 16 are drawn one by one, so that no two texts begin alike: a nonce of 120 bits."""
        parts = rng.choices(self.words, k=min(count, PIECE))
        pieces, rest = divmod(count - len(parts), PIECE)
        if pieces:
            parts += rng.choices(self._pieces, k=pieces)
        if rest:
            parts += rng.choices(self.words, k=rest)
        return " ".join(parts)
