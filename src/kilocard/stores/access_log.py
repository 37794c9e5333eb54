"""The access log: one JSON line for each request, in a file or on standard output.

No prompt, no key, no query string. Names and paths are whatever clients send: JSON escapes them, so a line is a line.
"""

from __future__ import annotations

import os
import select
import stat
from datetime import UTC, datetime

import msgspec

from kilocard.core.errors import StoreError
from kilocard.tenancy.usage import Record

#: most bytes of one write. To a pipe no more than stays together, whoever else writes there (PIPE_BUF)
_PIECE = 256 * 1024
_PIPE_PIECE = select.PIPE_BUF
#: line ends for some readers that JSON does not escape: U+2028, U+2029, U+0085
_LINE_ENDS = ((b"\xe2\x80\xa8", b"\\u2028"), (b"\xe2\x80\xa9", b"\\u2029"), (b"\xc2\x85", b"\\u0085"))


class Line(msgspec.Struct, gc=False):
    """The fields of a line, in their order (docs/usage.md). Seconds in `…_s`; null: there was no such thing."""

    #: when it ended
    time: str
    request_id: str
    client_request_id: str
    client: str | None
    tenant: str
    model: str
    path: str
    status: int | None
    outcome: str
    error_code: str | None
    pool: str | None
    replica: str | None
    attempts: int
    streamed: bool
    bytes_in: int
    prompt_tokens: int
    cached_tokens: int
    output_tokens: int
    estimated: bool
    held_s: float
    ttft_s: float | None
    duration_s: float


_encode_lines = msgspec.json.Encoder().encode_lines


def encode(records: list[Record], utc: float) -> bytearray:
    """The lines of a batch."""
    lines = []
    last, prefix = -1, ""
    addresses: dict[tuple[str, int] | None, str | None] = {}
    for (
        started, ended, request_id, client_id, peer, tenant, asked_model, _, path, streamed, bytes_in, pool, replica,
        attempts, outcome, status, code, (prompt, output, cached, estimated), held, first_at,
    ) in records:  # fmt: skip
        second, rest = divmod(int((ended + utc) * 1000), 1000)
        if second != last:
            last, prefix = second, datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%S")
        if peer not in addresses:
            addresses[peer] = _address(peer)
        lines.append(
            Line(
                f"{prefix}.{rest:03}Z", request_id.decode(), client_id.decode(), addresses[peer], tenant, asked_model,
                path, status or None, outcome, code or None, pool or None, replica or None, attempts, streamed,
                bytes_in, prompt, cached, output, estimated, _micro(held),
                _micro(first_at - started) if first_at else None, _micro(ended - started),
            )
        )  # fmt: skip
    data = _encode_lines(lines)
    for found, written in _LINE_ENDS:
        if found in data:
            data = data.replace(found, written)
    return bytearray(data)


def _micro(seconds: float) -> float:
    """To the microsecond: five times as fast as round."""
    return int(seconds * 1e6 + 0.5) / 1e6


def _address(peer: tuple[str, int] | None) -> str | None:
    if peer is None:
        return None
    host, port, *_ = peer
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


class AccessLog:
    """A sink of batches. A file that was renamed or removed (logrotate) is begun anew."""

    def __init__(self, path: str) -> None:
        """`path`: a file, or - for standard output. Raises StoreError where it can't be opened."""
        self._path = path
        self._torn = False
        self._file = 1
        if path != "-":
            try:
                self._file = self._open()
            except OSError as error:
                raise StoreError(
                    f"{path}: the access log can't be opened: {error.strerror or error}. "
                    "Name another file with gateway.access_log, or - for standard output."
                ) from error

        self._piece = _PIECE if stat.S_ISREG(os.fstat(self._file).st_mode) else _PIPE_PIECE

    def prepare(self, records: list[Record], utc: float) -> bytearray:
        return encode(records, utc)

    def write(self, prepared: bytearray) -> None:
        """What is written goes out of `prepared`: after an error the rest follows where it stopped."""
        if self._follow() and self._torn:
            del prepared[: prepared.find(b"\n") + 1]  # its beginning is at the end of the old file
            self._torn = False
        while prepared:
            # whole lines: other processes may write there too (workers), and one write stays together
            end = prepared.rfind(b"\n", 0, self._piece) + 1 or self._piece
            count = os.write(self._file, prepared[:end])
            self._torn = prepared[count - 1] != 10
            del prepared[:count]

    def tidy(self, now: float) -> None:
        self._follow()

    def close(self) -> None:
        if self._path != "-":
            os.close(self._file)

    def _open(self) -> int:
        # Not blocking: a named pipe without a reader is an error, not a gateway that hangs.
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK
        return os.open(self._path, flags, 0o640)

    def _follow(self) -> bool:
        """True where the path leads to another file than before, which is open now."""
        if self._path == "-":
            return False
        try:
            there = os.stat(self._path)
            here = os.fstat(self._file)
            if (there.st_ino, there.st_dev) == (here.st_ino, here.st_dev):
                return False
        except FileNotFoundError:
            pass
        fresh = self._open()
        os.close(self._file)
        self._file = fresh
        return True
