"""The last head of a peer: its next one is mostly the same, and need not be judged again (docs/decisions/0003)."""

from __future__ import annotations

from typing import Final

from kilocard.gateway.heads import ResponseHead


def around_length(raw: bytes) -> tuple[bytes, bytes] | None:
    """What stands before and behind the digits of a head's Content-Length; None where it has no usual such line.

    The heads of one peer are alike but for that number, so a head that was found good is remembered by these two
    pieces: another one that is byte for byte the same around some digits needs no second judgement. A head with two
    such lines is never found good, so neither piece holds another one.
    """
    for spelling in (b"\r\nContent-Length: ", b"\r\ncontent-length: "):
        start = raw.find(spelling)
        if start >= 0:
            start += len(spelling)
            end = raw.find(b"\r\n", start)
            if end < 0:
                end = len(raw)
            # 15 digits: no sum of lengths can leave 64 bits
            return (raw[:start], raw[end:]) if raw[start:end].isdigit() and end - start <= MAX_DIGITS else None
    return None


MAX_DIGITS: Final = 15
#: ends a head
END: Final = b"\r\n\r\n"
#: what stands before and behind a length while nothing is remembered
NOTHING = b"\x00", b""


def remembered_body(data: bytes, before: bytes, behind: bytes) -> bytes | None:
    """The body, if `data` (which starts with `before`) is one whole message with that head and nothing more. `behind`
    ends with the END; empty: nothing is remembered."""
    start = len(before)
    edge = data.find(behind, start, start + MAX_DIGITS + len(behind)) if behind else -1
    if edge <= start:
        return None
    digits = data[start:edge]
    if not digits.isdigit():
        return None
    body = data[edge + len(behind) :]
    return body if len(body) == int(digits) else None


class HeadMemo:
    """The last head with a length that a replica's connections found good: its next one is mostly the same."""

    __slots__ = ("before", "behind", "head", "keep_alive")

    def __init__(self) -> None:
        self.before, self.behind = NOTHING
        self.head = ResponseHead(0, b"", b"", False, False, False, False)
        self.keep_alive = False

    def remember(self, raw: bytes, head: ResponseHead) -> None:
        around = around_length(raw)
        self.before, self.behind = NOTHING if around is None else (around[0], around[1] + END)
        self.head = head
        self.keep_alive = not head.close

    def body(self, data: bytes) -> bytes | None:
        """The body, if `data` (which starts with `before`) is a whole response with that head and nothing more."""
        return remembered_body(data, self.before, self.behind)
