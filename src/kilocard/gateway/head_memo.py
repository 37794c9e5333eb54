"""The last response head of a replica: its next one is mostly the same, and need not be judged again."""

from __future__ import annotations

from kilocard.gateway.heads import NEVER, ResponseHead, around_length, remembered_body


class HeadMemo:
    """The last head with a length that a replica's connections found good: its next one is mostly the same."""

    __slots__ = ("before", "behind", "head", "keep_alive")

    def __init__(self) -> None:
        self.before = NEVER
        self.behind = b""
        self.head = ResponseHead(0, b"", b"", False, False, False, False)
        self.keep_alive = False

    def remember(self, raw: bytes, head: ResponseHead) -> None:
        around = around_length(raw)
        self.before, self.behind = (NEVER, b"") if around is None else around
        self.head = head
        self.keep_alive = not head.close

    def body(self, data: bytes) -> bytes | None:
        """The body, if `data` (which starts with `before`) is a whole response with that head and nothing more."""
        return remembered_body(data, self.before, self.behind)
