"""A name for a request body, for finding the same one again: "length-hash", both hexadecimal.

The length is there so that a body of a length that nobody looks for need not be hashed (Quarantine.sizes).
"""

from __future__ import annotations

from hashlib import blake2b

#: bytes of hash; 2⁻⁶⁴ for a chance meeting of two bodies among billions
DIGEST = 16


def fingerprint(model: str, body: bytes) -> str:
    """About 1 µs, and 1 ms for each MB."""
    digest = blake2b(body, digest_size=DIGEST, key=model.encode()[:64])
    return f"{len(body):x}-{digest.hexdigest()}"
