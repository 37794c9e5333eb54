"""The access log: one JSON line for each request, in a file or on standard output.

No prompt, no key, no query string. Names and paths are whatever clients send: JSON escapes them, so a line is a line.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime

import msgspec

from kilocard.core.errors import StoreError
from kilocard.tenancy.usage import Record

#: bytes of one write
_PIECE = 256 * 1024
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
    for record in records:
        ended = record.ended + utc
        second, rest = divmod(int(ended * 1000), 1000)
        if second != last:
            last, prefix = second, datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%S")
        peer, tokens, started = record.peer, record.tokens, record.started
        lines.append(
            Line(
                f"{prefix}.{rest:03}Z",
                record.request_id.decode("ascii", "replace"),
                record.client_id.decode("ascii", "replace"),
                None if peer is None else f"{peer[0]}:{peer[1]}" if ":" not in peer[0] else f"[{peer[0]}]:{peer[1]}",
                record.tenant,
                record.asked_model,
                record.path,
                record.status or None,
                record.outcome,
                record.code or None,
                record.pool or None,
                record.replica or None,
                record.attempts,
                record.streamed,
                record.bytes_in,
                tokens.prompt,
                tokens.cached,
                tokens.output,
                tokens.estimated,
                round(record.held, 6),
                round(record.first_at - started, 6) if record.first_at else None,
                round(record.ended - started, 6),
            )
        )
    data = _encode_lines(lines)
    for found, written in _LINE_ENDS:
        if found in data:
            data = data.replace(found, written)
    return bytearray(data)


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

    def prepare(self, records: list[Record], utc: float) -> bytearray:
        return encode(records, utc)

    def write(self, prepared: bytearray) -> None:
        """What is written goes out of `prepared`: after an error the rest follows where it stopped."""
        if self._follow() and self._torn:
            del prepared[: prepared.find(b"\n") + 1]  # its beginning is at the end of the old file
            self._torn = False
        while prepared:
            count = os.write(self._file, prepared[:_PIECE])
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
