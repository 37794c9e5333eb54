"""--profile: a built-in one, or a file."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import yaml

from kilocard.core.errors import SpecError, UsageError
from kilocard.perf.builtin import BUILTIN
from kilocard.perf.profile import Profile


def read_profile(name: str) -> Profile:
    """A built-in one, or a YAML or JSON file: a profile, or one under the key `profile` as calibrate's document has it.

    SpecError lists every problem of the file, each with the file's name; UsageError where it can't be read.
    """
    if name in BUILTIN:
        return BUILTIN[name]
    try:
        data = yaml.safe_load(Path(name).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise UsageError(f"profile {name} can't be read: {reason} (built in are {', '.join(BUILTIN)})") from None
    except yaml.YAMLError as error:
        raise SpecError(f"{name}: not YAML ({' '.join(str(error).split())})") from None
    inner = data.get("profile", data) if isinstance(data, dict) else data
    if not isinstance(inner, dict):
        raise SpecError(f"{name}: a profile is a mapping of keys (docs/emulator.md)")
    try:
        # YAML makes a date of what looks like one
        return Profile.from_mapping({k: v.isoformat() if isinstance(v, date) else v for k, v in inner.items()})
    except SpecError as error:
        raise SpecError("\n".join(f"{name}: {line}" for line in str(error).splitlines())) from None
