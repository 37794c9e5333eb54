"""Token estimates for requests whose exact count nobody has paid for yet.

Routing and limits need an order of magnitude at once, not the tokenizer's truth later.
"""

from __future__ import annotations

#: English prose is about 4 characters a token (OpenAI's rule of thumb); Chinese about 1.5 characters of 3 UTF-8
#: bytes each. Both come to 4–4.5 bytes of JSON body a token, so the body's size is a fair estimate for either.
BYTES_PER_TOKEN = 4

#: Where the client sets no max_tokens: the mean of the public chat traces is 211–343 output tokens.
DEFAULT_OUTPUT_TOKENS = 256
