"""A gateway that asks for no keys: fine on this machine, refused where others can reach it, unless it is told so."""

from __future__ import annotations

import ipaddress
import re

from kilocard.core.errors import UsageError
from kilocard.spec.model import ClusterSpec
from kilocard.spec.units import listen_address


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches `host`: 127.0.0.0/8, ::1 (also ::ffff:127.…) and the name localhost."""
    if host.lower() == "localhost":
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False  # a name: where it points may change
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback


def refuse_open(spec: ClusterSpec) -> None:
    """Raises UsageError where this cluster's gateway would serve everybody on an address that others reach."""
    listen = listen_address(spec.gateway.listen)
    if spec.tenants or spec.gateway.allow_open or is_loopback(listen.host):
        return
    raise UsageError(
        f"gateway.listen is {listen}, which other machines reach, and there are no tenants: whoever reaches it could "
        "use it. Add tenants with keys (`kilocard keys create` makes one), or listen on 127.0.0.1, "
        "or say gateway.allow_open: true."
    )


def exposures(spec: ClusterSpec) -> list[str]:
    """What others can reach without a key although it was asked for or can't be helped, a sentence each."""
    said = []
    gateway = spec.gateway
    host = listen_address(gateway.listen).host
    if not spec.tenants and not is_loopback(host):
        said.append(f"The gateway listens on {host} and asks for no keys (gateway.allow_open): everybody may use it.")
    host = listen_address(gateway.admin).host
    if not is_loopback(host):
        said.append(
            f"The admin address listens on {host} and asks for no keys: whoever reaches it reads state and metrics "
            "(changes are taken from this machine only). Keep it on a private network."
        )
    for url in [] if gateway.oidc is None else [gateway.oidc.issuer, gateway.oidc.jwks or gateway.oidc.issuer]:
        plain = re.match(r"http://\[?([^/?#\]]*?)\]?(?::\d*)?(?:[/?#]|$)", url)
        if plain is not None and not is_loopback(plain[1]):
            said.append(f"gateway.oidc fetches keys from {url} without TLS: whoever sits in between can make tokens.")
            break
    return said
