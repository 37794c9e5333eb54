"""Where an exchange is in its life. Plain integers, since an enum's member costs a lookup of 50 ns (CPython 3.11)."""

from __future__ import annotations

RESERVING, HELD, CONNECTING, WAITING, STREAMING, DONE = range(6)
