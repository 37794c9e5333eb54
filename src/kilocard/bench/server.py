"""What the load tester knows of the server in front of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from kilocard.bench.ask import Target
from kilocard.bench.form import Form
from kilocard.bench.gauges import Page


class IgnoreEos(StrEnum):
    """What the server does with `ignore_eos`, as tried out on it."""

    WORKS = "works"
    #: taken, and the answer still ends where the model wants
    IGNORED = "ignored"
    #: answered with an error
    REFUSED = "refused"
    #: ignored, but min_tokens does the same
    MIN_TOKENS = "min_tokens"
    #: the answers of the trial were long anyway: the run will show
    UNSEEN = "unseen"


@dataclass(frozen=True, slots=True)
class TokenizePage:
    """A page that counts tokens as `usage` does."""

    path: str
    #: the text goes through this page first, which puts the chat template around it; None: the page does it
    template_path: str | None = None


@dataclass(frozen=True, slots=True)
class Server:
    target: Target
    model: str
    form: Form
    #: all names in its model list
    models: tuple[str, ...] = ()
    #: name of the engine, as far as it can be guessed
    engine: str | None = None
    engine_version: str | None = None
    #: requests that it runs at once, tokens of its KV cache and of a block of it, where it says so
    max_num_seqs: int | None = None
    kv_tokens: int | None = None
    block_size: int | None = None
    #: tokens of prompt and answer that one request may have, where the server says so
    max_model_len: int | None = None
    chat: bool = False
    completions: bool = False
    ignore_eos: IgnoreEos = IgnoreEos.UNSEEN
    tokenize: TokenizePage | None = None
    pages: tuple[Page, ...] = ()
    #: what a reader of the numbers should know, in words
    notes: tuple[str, ...] = field(default=())

    def about(self) -> dict[str, Any]:
        """For results.json. No header, so no key."""
        return {
            "url": self.target.url,
            "path": self.target.path,
            "model": self.model,
            "engine": self.engine,
            "engine_version": self.engine_version,
            "max_num_seqs": self.max_num_seqs,
            "kv_tokens": self.kv_tokens,
            "block_size": self.block_size,
            "max_model_len": self.max_model_len,
            "stream_usage": self.form.usage,
            "ignore_eos": self.ignore_eos.value,
            "tokenize": self.tokenize is not None,
            "metrics": [page.url for page in self.pages],
            "notes": list(self.notes),
        }
