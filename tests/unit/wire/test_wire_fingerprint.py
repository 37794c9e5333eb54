from __future__ import annotations

from kilocard.wire.fingerprint import fingerprint


def test_it_names_the_length_and_tells_models_and_bodies_apart() -> None:
    mark = fingerprint("m", b"x" * 300)
    length, _, digest = mark.partition("-")
    assert int(length, 16) == 300 and len(digest) == 32
    assert mark == fingerprint("m", b"x" * 300)
    assert len({mark, fingerprint("n", b"x" * 300), fingerprint("m", b"y" * 300)}) == 3


def test_names_of_any_length() -> None:
    assert fingerprint("m" * 500, b"x") and fingerprint("", b"x") and fingerprint("模型", b"")
