"""The file behind --trace: text, or text that gzip packed, as large traces are handed around."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedReader, TextIOWrapper
from pathlib import Path
from typing import TextIO

from kilocard.core.errors import TraceError, UsageError

_GZIP = b"\x1f\x8b"


@contextmanager
def unpacked(path: Path) -> Iterator[gzip.GzipFile | BufferedReader]:
    """Its bytes. Raises OSError, or EOFError and zlib.error where it is packed and damaged."""
    with path.open("rb") as file:
        packed = file.peek(len(_GZIP)).startswith(_GZIP)
        yield gzip.GzipFile(fileobj=file) if packed else file


@contextmanager
def trace_text(path: Path) -> Iterator[TextIO]:
    """Its lines. Raises UsageError for a file that can't be read, also while it is read; a TraceError of the block
    gets the file's name."""
    try:
        with unpacked(path) as file, TextIOWrapper(file, encoding="utf-8") as lines:
            yield lines
    except TraceError as error:
        raise TraceError(f"--trace {path}: {error}") from None
    except UnicodeDecodeError as error:
        raise UsageError(f"--trace {path}: not text in UTF-8, nor packed with gzip ({error.reason})") from None
    except (OSError, EOFError, zlib.error) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise UsageError(f"--trace {path} can't be read: {reason}") from None
