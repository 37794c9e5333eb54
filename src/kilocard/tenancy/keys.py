"""Keys as their sources know them (hashes, never keys), and the merging of several sources. Pure: `now` is given."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import NamedTuple

from kilocard.spec.model import TenantSpec

PREFIX = "sha256:"


class Key(NamedTuple):
    """One key of one source."""

    #: SHA-256 of the key, 32 bytes
    digest: bytes
    tenant: str
    #: Unix time, seconds, from which on it is refused; None: never
    expires: float | None = None
    revoked: bool = False


class Keys(NamedTuple):
    """What several sources say together at one moment."""

    #: digests of keys that let somebody in now → tenant
    tenants: dict[bytes, str]
    #: Unix time at which the next of them expires; None: none does
    expires: float | None
    #: tenants that keys name and the cluster file does not
    undeclared: list[str]
    #: keys that stand for two tenants; the first source's counts
    contested: int


class Source(NamedTuple):
    """How one source of keys is doing, for metrics and logs."""

    #: "cluster", "keys_file", "store" or "oidc"
    name: str
    #: keys that it has for declared tenants, revoked ones left out
    keys: int
    #: what is wrong with it; None: nothing. What it said last goes on counting
    problem: str | None
    #: seconds since it was last found well; None: never yet
    age: float | None


def digest_of(written: str) -> bytes:
    """The 32 bytes of `sha256:<64 hex digits>`."""
    return bytes.fromhex(written.removeprefix(PREFIX))


def cluster_keys(tenants: Mapping[str, TenantSpec]) -> Iterator[Key]:
    """The keys that stand in the cluster file itself."""
    for tenant in tenants.values():
        for written in tenant.keys:
            yield Key(digest_of(written), tenant.name)


def merged(declared: Collection[str], sources: Iterable[Iterable[Key]], now: float) -> Keys:
    """One table out of several sources. `declared`: names of tenants; `now`: Unix time.

    The strictest word on a key wins: one that is revoked in any source is refused wherever else it stands, and of two
    times of expiry the earlier counts. So a key that was also pasted into a file can still be revoked in the store.
    """
    found: dict[bytes, Key] = {}
    undeclared = set()
    contested = 0
    for source in sources:
        for key in source:
            if key.tenant not in declared:
                undeclared.add(key.tenant)
                if not key.revoked:
                    continue
            known = found.get(key.digest)
            if known is None:
                found[key.digest] = key
                continue
            contested += known.tenant != key.tenant
            found[key.digest] = known._replace(
                expires=min((one for one in (known.expires, key.expires) if one is not None), default=None),
                revoked=known.revoked or key.revoked,
            )
    good = {
        digest: key
        for digest, key in found.items()
        if not key.revoked and (key.expires is None or now < key.expires) and key.tenant in declared
    }
    return Keys(
        {digest: key.tenant for digest, key in good.items()},
        min((key.expires for key in good.values() if key.expires is not None), default=None),
        sorted(undeclared),
        contested,
    )
