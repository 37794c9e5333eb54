"""Tests that hold measured times to narrow bounds."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import ParamSpec

P = ParamSpec("P")
TRIES = 3


def measurement(test: Callable[P, None]) -> Callable[P, None]:
    """What others do on this machine can only spoil a measurement: it is made again, twice at most, and counts if it is
    right once. Whoever measures wrongly does so each time. What was off before is printed."""

    @functools.wraps(test)
    def until_right(*args: P.args, **kwargs: P.kwargs) -> None:
        for _ in range(TRIES - 1):
            try:
                return test(*args, **kwargs)
            except AssertionError as error:
                print("measured again:", error, file=sys.stderr)
        return test(*args, **kwargs)

    return until_right
