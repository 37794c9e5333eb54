"""RequestReader, of servers that are not the hot path: ClientError or requests, however cut."""

from __future__ import annotations

from fuzz.cuts import cut, uncut
from fuzz.targets.request import SEEDS as _REQUESTS
from kilocard.core.errors import ClientError
from kilocard.wire.http1 import Request, RequestReader

SEEDS = [*_REQUESTS, uncut(b"POST /reload HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\nGET /state HTTP/1.1\r\n\r\n")]


def check(data: bytes) -> None:
    pieces, whole = cut(data)
    assert _read(pieces) == _read([whole]), "another answer to other cuts"


def _read(pieces: list[bytes]) -> tuple[list[Request], bool]:
    reader = RequestReader(max_head_bytes=2000, max_body_bytes=3000)
    requests: list[Request] = []
    try:
        for piece in pieces:
            requests += reader.feed(piece)
    except ClientError:
        return requests, True
    finally:
        reader.close()
    return requests, reader.error is not None
