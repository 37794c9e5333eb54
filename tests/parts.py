"""Parts that some suites need beside the package: skip without them on a developer's machine, never in CI."""

from __future__ import annotations

import os
from typing import NoReturn

import pytest


def in_ci() -> bool:
    return os.environ.get("CI", "").lower() in {"1", "true", "yes"}


def part_missing(reason: str) -> NoReturn:
    """Skip here, fail in CI. The reason says what to run to get the part."""
    if in_ci():
        pytest.fail(f"in CI a missing part is a failure: {reason}", pytrace=False)
    pytest.skip(reason)
