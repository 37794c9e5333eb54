"""What differs between two cluster files, and what of it a running gateway can take over."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass, replace

from kilocard.spec.model import ClusterSpec
from kilocard.spec.problems import Path, path_text

#: keys of `gateway:` that a process is built around
FIXED = (
    "listen", "admin", "store", "keys_file", "oidc", "limit_store", "usage", "access_log", "tracing", "record", "watch",
)  # fmt: skip


def differences(old: object, new: object, path: Path = ()) -> Iterator[str]:
    """Paths whose value differs, in the order of the file; never values, since some are secrets."""
    if is_dataclass(old) and is_dataclass(new) and type(old) is type(new):
        for field in fields(old):
            yield from differences(getattr(old, field.name), getattr(new, field.name), (*path, field.name))
    elif isinstance(old, Mapping) and isinstance(new, Mapping):
        for key in old:
            if key not in new:
                yield f"{path_text((*path, key))} removed"
            else:
                yield from differences(old[key], new[key], (*path, key))
        yield from (f"{path_text((*path, key))} added" for key in new if key not in old)
    elif old != new:
        yield path_text(path)


def adoptable(old: ClusterSpec, new: ClusterSpec) -> tuple[ClusterSpec, list[str]]:
    """`new` as far as a process that runs `old` can become it, and the keys that keep their old value until a
    restart."""
    before, after = old.gateway, new.gateway
    fixed = {key: getattr(before, key) for key in FIXED}
    if (before.tls is None) is not (after.tls is None):
        fixed["tls"] = before.tls
    kept = replace(new, gateway=replace(after, **fixed))
    return kept, [f"gateway.{key}" for key in fixed if getattr(before, key) != getattr(after, key)]
