"""Where an exchange is in its life. Plain integers, since an enum's member costs a lookup of 50 ns (CPython 3.11)."""

from __future__ import annotations

from typing import Final

RESERVING: Final = 0
HELD: Final = 1
CONNECTING: Final = 2
WAITING: Final = 3
STREAMING: Final = 4
DONE: Final = 5
