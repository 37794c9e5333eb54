"""A pool's `args` as command-line flags, in each engine's manner."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from enum import Enum

from kilocard.core.errors import EngineError
from kilocard.spec.model import PoolSpec, Scalar

_KEY = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


class Lists(Enum):
    """How an engine takes several values of one flag."""

    SPACED = "--key a b"
    REPEATED = "--key a --key b"
    COMMA = "--key a,b"


def plain(key: str) -> str:
    """One spelling of a key: `max_num_seqs`, `--max-num-seqs` and `max-num-seqs` are the same."""
    return key.strip().lstrip("-").replace("_", "-")


def arguments(pool: PoolSpec) -> dict[str, Scalar | tuple[Scalar, ...]]:
    """The pool's args under plain keys. Raises EngineError for keys that are no flag or are given twice."""
    found: dict[str, Scalar | tuple[Scalar, ...]] = {}
    for key, value in pool.args.items():
        name = plain(key)
        if not _KEY.fullmatch(name):
            raise wrong(pool, key, "is not the name of a flag")
        if name in found:
            raise wrong(pool, key, "is given twice, in two spellings; keep one")
        found[name] = value
    return found


def wrong(pool: PoolSpec, key: str, what: str) -> EngineError:
    """The error for one key of `args`."""
    return EngineError(f"pool {pool.name!r}: args.{key} {what}", code="bad_engine_argument", param=f"args.{key}")


def refuse(pool: PoolSpec, owned: Mapping[str, str]) -> None:
    """Raise EngineError where the args set what kilocard sets itself. `owned`: plain key → what to do instead."""
    for key in pool.args:
        advice = owned.get(plain(key))
        if advice is not None:
            raise wrong(pool, key, f"is set by kilocard; remove it: {advice}")


def flags(
    pool: PoolSpec,
    owned: Mapping[str, str],
    *,
    spell: Callable[[str], str] = "--{}".format,
    negate: Callable[[str], str | None] = lambda key: None,
    lists: Lists = Lists.SPACED,
    words: Mapping[str, tuple[str, str]] | None = None,
) -> list[str]:
    """argv words for the pool's args, in the file's order.

    `owned` keys are refused. `spell` writes a plain key as a flag. True gives the bare flag; False gives
    `negate(key)`, or nothing where the engine has no negative form (the flag is off without it). `words`: keys
    that take a word where YAML made a boolean of it, as (word for True, word for False).
    """
    refuse(pool, owned)
    argv: list[str] = []
    for key, value in arguments(pool).items():
        flag = spell(key)
        if isinstance(value, bool):
            if words is not None and key in words:
                argv += [flag, words[key][0 if value else 1]]
            elif value:
                argv.append(flag)
            elif (negative := negate(key)) is not None:
                argv.append(negative)
        elif isinstance(value, tuple):
            items = [text(pool, key, item) for item in value]
            if not items:
                raise wrong(pool, key, "is an empty list; remove it or give it values")
            if lists is Lists.COMMA:
                argv += _pair(flag, ",".join(items))
            elif lists is Lists.SPACED:
                argv += [flag, *items]
            else:
                for item in items:
                    argv += _pair(flag, item)
        else:
            argv += _pair(flag, text(pool, key, value))
    return argv


def text(pool: PoolSpec, key: str, value: Scalar) -> str:
    """One value as the engine reads it."""
    if value is None:
        raise wrong(pool, key, "has no value; write `true` for a flag without one")
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def _pair(flag: str, value: str) -> list[str]:
    """Values that look like flags are tied to theirs, or parsers take them for one. Numbers are safe apart."""
    if value.startswith("-") and not re.fullmatch(r"-\d+(\.\d+)?", value):
        return [f"{flag}={value}"]
    return [flag, value]


def whole(pool: PoolSpec, *keys: str) -> int | None:
    """The first of `keys` (plain) that the args give, as a whole number of at least 1; None: none is given.

    Raises EngineError for anything else: these numbers decide on GPUs and limits.
    """
    found = arguments(pool)
    for key in keys:
        if key in found:
            value = found[key]
            if isinstance(value, str) and value.isascii() and value.isdigit():
                value = int(value)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise wrong(pool, key, f"must be a whole number of at least 1, not {value!r}")
            return value
    return None
