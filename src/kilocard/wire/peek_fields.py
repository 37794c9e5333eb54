"""What peek.py looks for in a body, and what it tells of it. Apart, since msgspec makes these classes: mypyc can't
compile them.
"""

from __future__ import annotations

from typing import Any

import msgspec


class Peek(msgspec.Struct, frozen=True, gc=False):
    """What a gateway must know of a request. `output_tokens` is the client's limit, or an estimate."""

    model: str | None
    stream: bool
    output_tokens: int
    #: the client itself asked for the usage chunk at the end of the stream
    wants_usage: bool
    #: stream_options is in the body, so injecting means editing it
    has_stream_options: bool
    #: output_tokens is the client's own limit
    limited: bool
    #: answers that are made to each prompt (`n`, `best_of`)
    choices: int = 1


class _Body(msgspec.Struct):
    # Any: engines accept more than the API says ("stream": 1, null …); only what we act on is checked, below.
    model: Any = None
    stream: Any = None
    stream_options: Any = msgspec.UNSET  # told apart from null: both mean none, but only one is in the body
    max_tokens: Any = None
    max_completion_tokens: Any = None
    max_output_tokens: Any = None
    n_predict: Any = None  # llama.cpp's own word: goes before max_tokens there, on OpenAI's routes too
    n: Any = None
    best_of: Any = None
    n_cmpl: Any = None  # the same for n


decode_fields = msgspec.json.Decoder(_Body).decode


class _Prompts(msgspec.Struct):
    prompt: msgspec.Raw = msgspec.Raw(b"")
    prompt_embeds: msgspec.Raw = msgspec.Raw(b"")


decode_prompts = msgspec.json.Decoder(_Prompts).decode
decode_list = msgspec.json.Decoder(list[msgspec.Raw]).decode
