"""Why a process ended, for people: what its exit code means and which of its last log lines tells most."""

from __future__ import annotations

import re
import signal
from collections.abc import Callable, Sequence

_EXCEPTION = re.compile(r"(?:^|[\s\]:])([A-Za-z_][\w.]*(?:Error|Exception|Interrupt|Exit)\b(?::| \().*)$")
_TROUBLE = re.compile(
    r"(?<!-)\b(error|fatal|failed|failure|cannot|can't|could not|couldn't|unable|abort|aborted|panic|out of memory"
    r"|killed|not found|no such|denied|unknown|invalid|unrecognized)\b",
    re.IGNORECASE,
)
#: lines that only say that the reason stands elsewhere
_POINTERS = ("see root cause above", "traceback (most recent call last)", "see stack trace", "for more information")
_COLOURS = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
#: how the line begins with which kilocard opens a log: the command, which explains no end
FIRST_LINE = "kilocard: starting "
MAX_CHARS = 300

_MEANING = {
    signal.SIGKILL: " (out of memory?)",
    signal.SIGSEGV: " (it crashed: a fault in the engine or its driver)",
    signal.SIGBUS: " (it crashed: is /dev/shm or the disk full?)",
    signal.SIGABRT: " (it gave up)",
    signal.SIGILL: " (built for another processor?)",
}
#: SIGKILL, as subprocess and as shells give it
_KILLED = (-signal.SIGKILL, 128 + signal.SIGKILL)
_CODES = {126: " (the program can't be run)", 127: " (the program was not found)"}


def exit_meaning(code: int) -> str:
    """`code` as subprocess gives it (negative: a signal); 128 + n is how shells report signal n."""
    number = -code if code < 0 else code - 128 if 128 < code < 160 else 0
    if number:
        try:
            name = signal.Signals(number).name
        except ValueError:
            name = f"signal {number}"
        meaning = _MEANING.get(signal.Signals(number), "") if name.startswith("SIG") else ""
        return f"killed by {name}{meaning}"
    if code == 0:
        return "exited by itself with code 0"
    return f"exited with code {code}{_CODES.get(code, '')}"


def last_words(
    lines: Sequence[str], hint: Callable[[str], str | None] = lambda line: None, *, only_trouble: bool = False
) -> str:
    """The line that best tells why the engine ended, "" where it said nothing.

    Among lines that speak of trouble: the last that `hint` has plainer words for (Engine.loading_hint: somebody
    knew it for a cause), else the last exception, else the last one. Without any: the last
    line, or "" with `only_trouble`.
    """
    said = [text for line in lines if (text := _COLOURS.sub("", line).strip())]
    told = [
        text for text in said if not (text.startswith(FIRST_LINE) or any(each in text.lower() for each in _POINTERS))
    ]
    trouble = [text for text in reversed(told) if _EXCEPTION.search(text) or _TROUBLE.search(text)]
    for text in trouble:
        if plain := hint(text):
            return plain[:MAX_CHARS]
    for text in trouble:
        if match := _EXCEPTION.search(text):
            return match[1][:MAX_CHARS]
    for text in (trouble or ([] if only_trouble else told[::-1]))[:1]:
        return (hint(text) or text)[:MAX_CHARS]
    return ""


def exit_reason(code: int, lines: Sequence[str], hint: Callable[[str], str | None] = lambda line: None) -> str:
    """What `code` means and the engine's last words, where they can be about that: SIGKILL lets nobody say why."""
    words = last_words(lines, hint, only_trouble=code in _KILLED)
    return f"{exit_meaning(code)}: {words}" if words else exit_meaning(code)
