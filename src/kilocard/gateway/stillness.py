"""When has something that is looked at again and again changed, and lain still since? Pure."""

from __future__ import annotations

from typing import Generic, TypeVar

T = TypeVar("T")


class Stillness(Generic[T]):
    """`known` is what was taken last; values are compared, so coming back to it is no news."""

    def __init__(self, known: T) -> None:
        self.known = known
        self._seen = known

    def take(self, value: T) -> None:
        """This is known now."""
        self.known = self._seen = value

    def news(self, value: T) -> bool:
        """Whether it is new, and the same as at the last look: then whoever writes it is done."""
        still = value == self._seen
        self._seen = value
        return still and value != self.known
