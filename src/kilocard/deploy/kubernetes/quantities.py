"""Numbers as Kubernetes writes them."""

from __future__ import annotations


def cores(number: float) -> str:
    """2.0 → "2", 0.5 → "500m"."""
    return str(int(number)) if number == int(number) else f"{max(1, round(number * 1000))}m"


def quantity(size: int) -> str:
    """Bytes, in the largest unit that keeps them exact."""
    for unit, factor in (("Gi", 2**30), ("Mi", 2**20), ("Ki", 2**10)):
        if size % factor == 0:
            return f"{size // factor}{unit}"
    return str(size)
