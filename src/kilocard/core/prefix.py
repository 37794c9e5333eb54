"""What two prompts have in common, without their text: a chain of hashes over the beginning of each.

Key number i stands for the first `EDGES[i]` tokens: equal keys mean equal beginnings of that length. The edges are the
same for every prompt, close together at first and then a quarter of a power of two apart, so that a prompt of 100,000
tokens has 40 keys rather than 400; at most a fifth of what is shared goes unseen, a tenth as a rule.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from hashlib import blake2b
from typing import NamedTuple

#: tokens of the first chunks, and how many chunks there are between two powers of two after them
CHUNK = 256
PER_OCTAVE = 4
#: no engine has a longer context; what is behind it is not told apart
LONGEST = 2**21
#: where nothing tells a conversation's first message from the rest, its first tokens stand for it
HOME_TOKENS = 2048
#: bytes of a key. Two different beginnings among a million have the same one with a chance of 1 in 500; that costs one
#: wrong guess of a router
KEY_BYTES = 6


def _edges() -> tuple[int, ...]:
    edges = [CHUNK * (number + 1) for number in range(PER_OCTAVE)]
    while edges[-1] < LONGEST:
        step = max(CHUNK, (1 << (edges[-1].bit_length() - 1)) // PER_OCTAVE)
        edges.append(edges[-1] + step)
    return tuple(edges)


#: tokens that the keys of a prompt cover, by the number of the key
EDGES = _edges()


class Prefix(NamedTuple):
    """One prompt as routing sees it. No text is in it."""

    #: of the whole prompt, estimated
    tokens: int
    #: as many as there are edges within the prompt
    keys: Sequence[int]
    #: the same in all turns of one conversation, and different between conversations; 0: not known
    home: int = 0
    #: the conversation's own name (a header); 0: none
    session: int = 0


def edges_within(tokens: int) -> int:
    """How many keys a prompt of this many tokens has."""
    return bisect_right(EDGES, tokens)


def key_of(data: bytes, salt: bytes = b"") -> int:
    """A key for anything; never 0. `salt`: at most 64 bytes."""
    return int.from_bytes(blake2b(data, digest_size=KEY_BYTES, key=salt).digest(), "little") | 1


def text_keys(text: bytes, bytes_per_token: int) -> tuple[int, ...]:
    """Keys of a prompt's text. About 1.3 µs a KB, and 1 µs a key."""
    keys = []
    at = 0
    before = b""
    for edge in EDGES[: edges_within(len(text) // bytes_per_token)]:
        end = edge * bytes_per_token
        before = blake2b(text[at:end], digest_size=KEY_BYTES, key=before).digest()
        keys.append(int.from_bytes(before, "little"))
        at = end
    return tuple(keys)


def block_keys(blocks: Sequence[int], block_tokens: int) -> tuple[int, ...]:
    """Keys of a prompt that is known by the numbers of its KV blocks, as traces have them."""
    keys = []
    at = 0
    before = b""
    for edge in EDGES[: edges_within(len(blocks) * block_tokens)]:
        end = -(-edge // block_tokens)  # a block that is shared is shared as a whole
        before = blake2b(repr(tuple(blocks[at:end])).encode(), digest_size=KEY_BYTES, key=before).digest()
        keys.append(int.from_bytes(before, "little"))
        at = end
    return tuple(keys)


def of_blocks(
    tokens: int, blocks: Sequence[int], block_tokens: int, conversation: str | None = None, session: str | None = None
) -> Prefix | None:
    """What simulators tell of a request in a trace. `session`: what a header names. None: it shares nothing with
    anybody's."""
    keys = block_keys(blocks, block_tokens)
    named = 0 if session is None else key_of(session.encode())
    if not keys:
        return Prefix(tokens, (), 0, named) if named else None
    home = keys[edges_within(min(HOME_TOKENS, EDGES[len(keys) - 1])) - 1]
    return Prefix(tokens, keys, home if conversation is None else key_of(conversation.encode()), named)


def key_blocks(keys: Sequence[int], ids: dict[int, int]) -> tuple[int, ...]:
    """The other way round: blocks of CHUNK tokens, as far as the keys go, that are equal where the keys are.

    `ids` numbers the keys of all prompts in the order in which they are met; a key that covers several blocks has all
    of them under its own number.
    """
    blocks: list[int] = []
    for edge, key in zip(EDGES, keys, strict=False):
        blocks += [ids.setdefault(key, len(ids))] * (edge // CHUNK - len(blocks))
    return tuple(blocks)
