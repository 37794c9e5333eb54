"""Hashes of tenants' API keys. A value that is no hash may be somebody's key, so no message repeats it."""

from __future__ import annotations

import re

from kilocard.spec.kinds import Unit
from kilocard.spec.units import UnitError, kind_of


def key_hash(value: object) -> str:
    """`sha256:` and 64 hexadecimal digits, in lower case."""
    advice = "write sha256: and 64 hexadecimal digits; `kilocard keys create` makes a key and prints this line for it"
    if not isinstance(value, str):
        raise UnitError(f"is {kind_of(value)}, not a key's hash", advice)
    text = value.strip()
    if not text.startswith("sha256:"):
        raise UnitError("is no hash; keys never stand in this file in plain text", advice)
    if not re.fullmatch(r"sha256:[0-9a-fA-F]{64}", text):
        raise UnitError("is no SHA-256 hash (64 hexadecimal digits)", advice)
    return text.lower()


KEY_HASH = Unit("sha256:<64 hex digits>", key_hash, str, ({"type": "string", "pattern": "^sha256:[0-9a-fA-F]{64}$"},))
