"""Addresses of replicas that exist already: `http://host:port`, nothing more."""

from __future__ import annotations

import re

from kilocard.spec import units
from kilocard.spec.kinds import Unit
from kilocard.spec.units import Address, UnitError, kind_of, show


def endpoint(value: object) -> str:
    """A replica's base URL, host in lower case and port spelt out: `http://GPU1/` → `http://gpu1:80`."""
    advice = "write http://host:port"
    if not isinstance(value, str):
        raise UnitError(f"is {kind_of(value)}, not a URL", advice)
    if "@" in value:  # before anything of it is repeated
        raise UnitError("has a user name or password in it", "leave it out: replicas are called without one")
    scheme, separator, rest = value.strip().partition("://")
    if not separator:
        raise UnitError(f"is {show(value)}, which has no scheme", f"write http://{value.strip()[:60]}")
    if scheme.lower() == "https":
        raise UnitError(
            "is an https URL; TLS to replicas is not supported yet",
            "write http:// and keep the replicas on a private network, or put a TLS-ending proxy beside each",
        )
    if scheme.lower() != "http":
        raise UnitError(f"has the scheme {show(scheme)}", advice)
    authority, tail = re.fullmatch(r"([^/?#]*)(.*)", rest, re.DOTALL).groups()  # type: ignore[union-attr]  # always matches
    if tail not in {"", "/"}:
        # /v1 is what OpenAI clients are given as a base URL, so it is what people paste here.
        raise UnitError(f"has the path {show(tail)}", "leave it out: kilocard adds /v1/… and /metrics itself")
    name, colon, port = authority.rpartition(":")
    if not colon or authority.endswith("]"):
        name, port = authority, "80"
    if not name:
        raise UnitError(f"is {show(value)}, which has no host", advice)
    return f"http://{Address(units.host(name), units.port(port))}"


ENDPOINT = Unit(
    "http://host:port",
    endpoint,
    str,
    ({"type": "string", "pattern": r"^[hH][tT][tT][pP]://(?:\[[0-9a-fA-F:.]+\]|[^:/?#@\s\[\]]+)(?::[0-9]+)?/?$"},),
)
