"""A folder of rendered files, which knows what it has written before."""

from __future__ import annotations

from pathlib import Path

from kilocard.core.errors import UsageError
from kilocard.deploy.target import Files

#: one path a line: files that `kilocard render` wrote here, and so may remove again
LIST = ".kilocard-rendered"


class Folder:
    def __init__(self, path: Path) -> None:
        self.path = path

    def news(self, files: Files) -> dict[str, str]:
        """What is not as rendered: path → "is missing", "differs" or "is no longer rendered". Empty: up to date."""
        found = {}
        for name, text in files.items():
            there = self._text(name)
            if there != text:
                found[name] = "is missing" if there is None else "differs"
        for name in self._stale(files):
            found[name] = "is no longer rendered"
        return found

    def write(self, files: Files) -> None:
        """Raises UsageError where the folder can't be written."""
        try:
            for name in self._stale(files):
                (self.path / name).unlink()
            for name, text in {**files, LIST: "".join(f"{name}\n" for name in files)}.items():
                path = self.path / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text, encoding="utf-8")
        except OSError as error:
            raise UsageError(f"--out {self.path}: can't be written ({error.strerror or error})") from error

    def _stale(self, files: Files) -> list[str]:
        """Files of an earlier rendering that are still there and no longer belong."""
        listed = (self._text(LIST) or "").splitlines()
        inside = [name for name in listed if name and ".." not in Path(name).parts and not Path(name).is_absolute()]
        return [name for name in inside if name not in files and (self.path / name).is_file()]

    def _text(self, name: str) -> str | None:
        try:
            return (self.path / name).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            return None
