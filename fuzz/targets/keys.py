"""Keys files: SpecError, without a word of what may be a key, or keys of 32 bytes."""

from __future__ import annotations

from kilocard.core.errors import SpecError
from kilocard.tenancy.keys_file import read_keys

SEEDS = [
    b"team-a: [sha256:%b]\nteam-b: ['sha256:%b']\n" % (b"0a" * 32, b"ff" * 32),
    b"{}",
    b"team-a: sha256:zz\nteam-a: [plain-secret]\n",
    b"- a\n- b\n",
]


def check(data: bytes) -> None:
    try:
        keys = read_keys(data.decode("utf-8", "replace"), "f")
    except SpecError as error:
        assert str(error)
        return
    assert all(len(key.digest) == 32 and key.tenant for key in keys)
