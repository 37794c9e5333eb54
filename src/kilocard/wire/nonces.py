"""What is new in each request without meaning anything: it is left out of the hash of a prompt's beginning.

Agents and frameworks put the time, a request's id or a checksum into their system prompts, so that no two begin alike
(claude-code#68900, vllm-mlx#277, llama.cpp#20623). Such things are known by their form, in system prompts only: in what
people write a number is a number.
"""

from __future__ import annotations

import re
from functools import lru_cache

#: in order: a line that Claude Code adds for accounting; UUIDs; dates with a time; times with seconds; seconds,
#: milli-, micro- or nanoseconds since 1970; hexadecimal numbers of 16 digits and more (with a digit among the first
#: eight: no word). Dates without a time stay: they change once a day
_NONCE = re.compile(
    rb"x-anthropic-billing-header:[^\"\\]*"
    rb"|(?<![0-9A-Za-z])(?:"
    rb"[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}"
    rb"|[12][0-9]{3}-[01][0-9]-[0-3][0-9][T ][0-2][0-9]:[0-5][0-9]"
    rb"(?::[0-5][0-9](?:[.,][0-9]+)?)?(?:Z|[+-][0-9]{2}:?[0-9]{2})?"
    rb"|[0-2]?[0-9]:[0-5][0-9]:[0-5][0-9](?:[.,][0-9]+)?"
    rb"|[12][0-9]{9}(?:[0-9]{3}){0,3}"
    rb"|(?=[a-fA-F]{0,7}[0-9])[0-9a-fA-F]{16,}"
    rb")(?![0-9A-Za-z])"
)


_DIGITS = b"0123456789"
#: as JSON writes the end of a line: no nonce goes over one
_LINE_END = rb"\n"
#: lines that are remembered, and their longest: 4 MB at most. Only few lines of a system prompt are new each time
LINES = 2048
LONGEST = 2048


def without_nonces(text: bytes) -> bytes:
    """The same with each of them as one mark. `text`: UTF-8, escaped as in JSON.

    Cheap for what has been seen before: the search costs 30 µs a KB, what is remembered 1 µs.
    """
    if len(text.translate(None, _DIGITS)) == len(text):
        return text
    return _LINE_END.join([_line(line) for line in text.split(_LINE_END)])


def _line(line: bytes) -> bytes:
    if len(line.translate(None, _DIGITS)) == len(line):
        return line
    return _remembered(line) if len(line) <= LONGEST else _NONCE.sub(b"\xff", line)


@lru_cache(LINES)
def _remembered(line: bytes) -> bytes:
    return _NONCE.sub(b"\xff", line)
