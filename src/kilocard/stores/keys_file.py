"""A file of keys, followed while the gateway runs."""

from __future__ import annotations

import stat
from pathlib import Path

from kilocard.core.errors import StoreError
from kilocard.tenancy.keys import Key
from kilocard.tenancy.keys_file import read_keys

_Stamp = tuple[int, int, int]


class KeysFile:
    """Replace the file by renaming another one over it, as a mounted Kubernetes Secret does (there a symbolic link is
    what is renamed): then it is never seen half written. A file that is written in place is taken once it is whole.
    """

    name = "keys_file"

    def __init__(self, path: Path) -> None:
        self.place = f"gateway.keys_file {path}"
        self._path = path
        self._seen: _Stamp | None = None
        self._wrong: Exception | None = None

    def look(self) -> tuple[Key, ...] | None:
        """All keys if the file has changed, else None. Blocks. Raises SpecError and StoreError while it is wrong."""
        try:
            stamp = self._stamp()
            if stamp == self._seen:
                if self._wrong is not None:
                    raise self._wrong  # not read again before it changes
                return None
            text = self._path.read_text("utf-8-sig")
            if self._stamp() != stamp:
                return None  # somebody is writing
        except (OSError, UnicodeDecodeError) as error:
            self._seen = None
            raise StoreError(f"{self._path} can't be read: {getattr(error, 'strerror', None) or error}") from error
        self._seen, self._wrong = stamp, None
        try:
            return read_keys(text, str(self._path))
        except Exception as error:
            self._wrong = error
            raise

    def close(self) -> None:
        """Nothing is held open."""

    def _stamp(self) -> _Stamp:
        info = self._path.stat()
        if not stat.S_ISREG(info.st_mode):  # to open a pipe may take for ever, and a device never ends
            self._seen = None
            raise StoreError(f"{self._path} is no regular file; name one, and rename another over it to change keys")
        return info.st_mtime_ns, info.st_size, info.st_ino
