"""What is asked of the cluster: how much, how long, how fast."""

from __future__ import annotations

from dataclasses import dataclass, replace

from kilocard.workload.lengths import Length

#: tokens of a request where nothing is said: a chat turn with its history, an answer of a few paragraphs
USUAL_INPUT, USUAL_OUTPUT = 512, 256
#: seconds; where no objective is given: about the patience of a person who reads along
USUAL_TTFT, USUAL_TPOT = 2.0, 0.1
#: and times what one stream alone takes, where that is more
EASE_TTFT, EASE_TPOT = 3.0, 2.0


@dataclass(frozen=True, slots=True)
class Objective:
    """Seconds that 95 % of requests must stay under (the mean, where only the closed form speaks)."""

    ttft_s: float
    tpot_s: float
    #: which of them somebody asked for; the others are our usual ones and give way where a model can't meet them
    asked_ttft: bool = False
    asked_tpot: bool = False

    @classmethod
    def of(cls, ttft_s: float | None, tpot_s: float | None) -> Objective:
        return cls(
            USUAL_TTFT if ttft_s is None else ttft_s,
            USUAL_TPOT if tpot_s is None else tpot_s,
            ttft_s is not None,
            tpot_s is not None,
        )

    def met(self, ttft_s: float, tpot_s: float) -> bool:
        return ttft_s <= self.ttft_s and tpot_s <= self.tpot_s

    def eased(self, ttft_s: float, tpot_s: float) -> Objective:
        """Where nobody asked: no less than some times what one stream alone gets (long prompts, slow cards)."""
        return replace(
            self,
            ttft_s=self.ttft_s if self.asked_ttft else max(self.ttft_s, EASE_TTFT * ttft_s),
            tpot_s=self.tpot_s if self.asked_tpot else max(self.tpot_s, EASE_TPOT * tpot_s),
        )


@dataclass(frozen=True, slots=True)
class Demand:
    """A rate, or a number of streams that are always open, or neither: then one replica is looked at."""

    input: Length
    output: Length
    #: requests a second, at the peak
    rate_per_s: float | None = None
    #: requests in flight, always
    concurrency: int | None = None
    objective: Objective = Objective(USUAL_TTFT, USUAL_TPOT)

    @property
    def input_tokens(self) -> float:
        return self.input.mean

    @property
    def output_tokens(self) -> float:
        return self.output.mean

    @property
    def output_tokens_per_s(self) -> float | None:
        return None if self.rate_per_s is None else self.rate_per_s * self.output.mean
