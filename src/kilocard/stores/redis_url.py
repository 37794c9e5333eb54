"""redis:// and rediss:// URLs: where the server is, and how to get in."""

from __future__ import annotations

import ssl
from typing import NamedTuple
from urllib.parse import parse_qsl, unquote, urlsplit

from kilocard.core.errors import UsageError

_QUERY = "ssl_ca_certs, ssl_cert_reqs"


class RedisUrl(NamedTuple):
    host: str
    port: int
    database: int
    username: str | None
    password: str | None
    tls: ssl.SSLContext | None

    @property
    def name(self) -> str:
        """Fit for logs: without the password."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}/{self.database}"


def parse(url: str) -> RedisUrl:
    """`redis[s]://[[user]:password@]host[:port][/database]`. Raises UsageError, which does not repeat the URL.

    For rediss there are `?ssl_ca_certs=FILE` (a private authority) and `ssl_cert_reqs=none` (check nothing).
    """
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "127.0.0.1", parts.port or 6379
        host.encode("idna")  # raises a ValueError for what no name server could be asked
        database = int(parts.path.strip("/") or "0")
        query = dict(parse_qsl(parts.query, strict_parsing=bool(parts.query)))
        authority, required = query.pop("ssl_ca_certs", None), query.pop("ssl_cert_reqs", "required")
    except ValueError:
        raise _wrong("it is no redis:// URL") from None  # some of these errors repeat a part of the password
    if parts.fragment or database < 0:
        raise _wrong("it is no redis:// URL")
    if query:
        raise _wrong(f"after the question mark there may be {_QUERY}")
    if required not in {"required", "none"}:
        raise _wrong("ssl_cert_reqs is required or none")
    tls = None
    if parts.scheme == "rediss":
        try:
            tls = ssl.create_default_context(cafile=authority)
        except OSError as error:
            raise _wrong(f"ssl_ca_certs can't be read: {error}") from error
        if required == "none":
            tls.check_hostname = False
            tls.verify_mode = ssl.CERT_NONE
    elif authority is not None or required == "none":
        raise _wrong("ssl_… options are for rediss://")
    username = unquote(parts.username) if parts.username else None
    password = unquote(parts.password) if parts.password else None
    return RedisUrl(host, port, database, username, password, tls)


def _wrong(why: str) -> UsageError:
    return UsageError(
        f"gateway.limit_store: {why}; write redis://[user:password@]host:port/0 (in user and password # as %23, / as "
        "%2F, ? as %3F, % as %25)"
    )
