"""Token estimates for requests whose exact count nobody has paid for yet.

Routing and limits need an order of magnitude at once, not the tokenizer's truth later.
"""

from __future__ import annotations

from typing import Final

#: English prose is about 4 characters a token (OpenAI's rule of thumb); Chinese about 1.5 characters of 3 UTF-8
#: bytes each. Both come to 4–4.5 bytes of JSON body a token, so the body's size is a fair estimate for either.
BYTES_PER_TOKEN: Final = 4

#: What a picture inside a body counts as, in bytes of text: about 1,000 tokens, which is what vision models make of one
#: megapixel (Qwen2-VL: 28 × 28 pixels a token).
PICTURE_BYTES: Final = 4096

#: Where the client sets no max_tokens: the mean of the public chat traces is 211–343 output tokens.
DEFAULT_OUTPUT_TOKENS: Final = 256

#: No request has more. What is above it is no count that can be reckoned with: floats and databases have no room for
#: any number of digits
MOST_TOKENS: Final = 10**12

_PICTURE = b";base64,"


def text_bytes(body: bytes) -> int:
    """The size of a JSON body, with each long data: URL in it counted as a picture rather than by its length."""
    size = len(body)
    at = body.find(_PICTURE)
    while at >= 0:
        end = body.find(b'"', at)
        if end < 0:
            end = len(body)
        over = end - at - PICTURE_BYTES
        if over > 0 and body.find(b" ", at, end) < 0:  # with spaces it is no base64 but text
            size -= over
        at = body.find(_PICTURE, end)
    return size
