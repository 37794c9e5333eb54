"""Prompts of an exact token count, distinct unless they are meant to share a prefix."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from functools import lru_cache
from random import Random

from kilocard.bench.ask import Ask
from kilocard.bench.calibration import Calibration
from kilocard.bench.form import Form
from kilocard.bench.words import Text
from kilocard.workload.request import WorkloadRequest

#: texts of shared blocks that are kept; a block is made again from its id when it is asked for after that
_KEPT_BLOCKS = 4096


class Prompts:
    """Makes asks for one server. Two with different `rng` share no prefix; one never says the same twice.

    `rng` should be freshly seeded for each run: engines keep prefixes of earlier runs in their caches.
    """

    def __init__(self, calibration: Calibration, form: Form, rng: Random) -> None:
        self.calibration = calibration
        self.form = form
        # One of its own: `rng` may be the system's, which is slow.
        self._rng = Random(rng.getrandbits(64))  # noqa: S311  # filler text
        self._text = Text(calibration.words, self._rng)
        self._seed = self._rng.getrandbits(64)
        self._blocks: OrderedDict[tuple[int, int], str] = OrderedDict()
        self._around = lru_cache(maxsize=4096)(form.around)

    def fresh(self) -> Prompts:
        """For the next point: shared blocks have other texts, so that no point finds what the one before left."""
        again = object.__new__(Prompts)
        again.calibration, again.form = self.calibration, self.form
        again._rng, again._text, again._around = self._rng, self._text, self._around
        again._seed = self._rng.getrandbits(64)
        again._blocks = OrderedDict()
        return again

    def text(self, input_tokens: int, blocks: Sequence[int] = (), block_tokens: int = 0) -> str:
        """What the user says, in a prompt of `input_tokens` tokens, chat template included.

        Equal block ids at the same place give equal text, of `block_tokens` tokens each; what is left of the
        length is text of its own. A length below the template's is answered with the shortest prompt there is.
        """
        count = self.calibration.words_for(input_tokens)
        if not blocks or block_tokens <= 0:
            return self._text.make(count, self._rng)
        each = max(1, round(block_tokens / self.calibration.tokens_per_word))
        whole, part = divmod(count, each)
        parts = [self._block(block, each) for block in blocks[:whole]]
        if len(blocks) > whole:
            if part:
                parts.append(" ".join(self._block(blocks[whole], each).split(" ", part)[:part]))
        elif (left := count - len(blocks) * each) > 0:
            parts.append(self._text.make(left, self._rng))
        return " ".join(parts)

    def ask(self, input_tokens: int, output_tokens: int, *, blocks: Sequence[int] = (), block_tokens: int = 0) -> Ask:
        """A request on its own."""
        body = self._body(self.text(input_tokens, blocks, block_tokens), output_tokens)
        return Ask(body, input_tokens, output_tokens)

    def of(self, request: WorkloadRequest) -> Ask:
        """The ask for one request of a workload."""
        text = self.text(request.input_tokens, request.blocks, request.block_tokens)
        return Ask(
            self._body(text, request.output_tokens),
            request.input_tokens,
            request.output_tokens,
            at_s=request.at_s,
            session=request.session if request.waits else None,
            turn=request.turn,
            think_s=request.think_s,
            cancel_after_s=request.cancel_after_s,
        )

    def _body(self, text: str, output_tokens: int) -> bytes:
        before, behind = self._around(output_tokens)
        return before + text.encode() + behind

    def _block(self, block: int, words: int) -> str:
        """The text of a block depends on its id and on this object's seed, not on what was asked before."""
        key = block, words
        text = self._blocks.get(key)
        if text is None:
            text = self._text.make(words, Random(f"{self._seed} {block}"))  # noqa: S311  # filler text
            self._blocks[key] = text
            if len(self._blocks) > _KEPT_BLOCKS:
                self._blocks.popitem(last=False)
        else:
            self._blocks.move_to_end(key)
        return text
