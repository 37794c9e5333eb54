"""Decision logs: UsageError or a verdict. A log is data: whatever it names, nothing of it is run."""

from __future__ import annotations

import json

import msgspec

from kilocard.core.errors import UsageError
from kilocard.dispatch import replay
from kilocard.dispatch.config import PoolFacts
from kilocard.spec.model import ModelSpec

_SETUP = replay.Setup({"m": ModelSpec("m", {"p": 1})}, {"p": PoolFacts(4, None)}, 1, 1.0)
_HEADER = json.dumps(replay.header(_SETUP, "0", 0.0, 0.0)).encode() + b"\n"
_LINES = (
    b'[["replica_up",1.0,"a","p"]]\n[["arrived",2.0,1,"m",10,5,60.0,"","normal",1.0,""],["send",1,"a","only one",1]]\n'
    b'[["answered",2.1,1,200]]\n[["first_content",2.2,1]]\n[["finished",3.0,1,200,5]]\n[["tick",4.0]]\n'
    b'[["scraped",4.0,"a",null]]\n[["failed",5.0,2,"reset",null,"x",""]]\n[["replica_gone",6.0,"a"]]\n'
)
SEEDS = [_LINES, b"\x01" + _HEADER + _LINES, b'\x01{"kilocard_decision_log": 1, "setup": {"table": [], "root": [0]}}\n']


def check(data: bytes) -> None:
    """A first byte of 1: the header is in the data too."""
    text = data[1:] if data[:1] == b"\x01" else _HEADER + data
    try:
        lines = [msgspec.json.decode(line) for line in text.splitlines()]
    except msgspec.DecodeError:
        return
    try:
        replay.check(lines)
    except UsageError as error:
        assert str(error)
