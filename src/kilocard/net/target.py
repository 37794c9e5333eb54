"""Where a URL points and the request head that asks for it. Bytes only, no I/O."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple
from urllib.parse import quote, urlsplit

from kilocard.core.errors import UsageError

DEFAULT_PORTS = {"http": 80, "https": 443}
#: bytes of a request target that may stand as they are; everything else is percent-encoded (RFC 3986, "%" kept)
_SAFE = "/?&=:;,@!$'()*+~%-._[]"


class Target(NamedTuple):
    """A parsed URL. `path` is what the request line carries: it starts with "/" and includes the query."""

    url: str
    scheme: str
    host: str
    port: int
    path: str

    @property
    def authority(self) -> str:
        """The Host header's value: brackets around IPv6, the port only where it is not the scheme's own."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == DEFAULT_PORTS[self.scheme] else f"{host}:{self.port}"


def parse_target(url: str) -> Target:
    """Split an http:// or https:// URL. Raises UsageError for anything else, saying what is wrong with it."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise UsageError(f"{url!r} is not a URL: {error}", code="bad_url") from error
    if parts.scheme not in DEFAULT_PORTS:
        said = f"scheme {parts.scheme!r}" if "://" in url else "no scheme"
        raise UsageError(f"{url!r} has {said}: write http://host:port or https://host:port", code="bad_url")
    if not parts.hostname:
        raise UsageError(f"{url!r} names no host: write {parts.scheme}://host:port", code="bad_url")
    if parts.username is not None or parts.password is not None:
        raise UsageError(f"the URL for {parts.hostname} carries a user name: send a header instead", code="bad_url")
    if any(c <= " " or c == "\x7f" for c in url):
        raise UsageError(f"{url!r} contains a space or a control character", code="bad_url")
    path = quote(parts.path or "/", safe=_SAFE)
    if parts.query:
        path += "?" + quote(parts.query, safe=_SAFE)
    return Target(url, parts.scheme, parts.hostname, port or DEFAULT_PORTS[parts.scheme], path)


def request_bytes(
    target: Target, method: str, headers: Iterable[tuple[str, str]], body: bytes, *, keep_alive: bool
) -> bytes:
    """A whole HTTP/1.1 request. Host, Connection and Content-Length are set here unless `headers` has them.

    Raises UsageError for a method or header that would break the framing.
    """
    if not method.isascii() or not method.isalpha():
        raise UsageError(f"{method!r} is not an HTTP method", code="bad_request")
    lines = [f"{method.upper()} {target.path} HTTP/1.1"]
    given = set()
    for name, value in headers:
        if not name or any(c in name + value for c in "\r\n\0") or any(c in name for c in ": \t"):
            raise UsageError(f"header {name!r} can't be sent: it holds a line break or another separator")
        given.add(name.lower())
        lines.append(f"{name}: {value}")
    if "host" not in given:
        lines.insert(1, f"Host: {target.authority}")
    if "connection" not in given and not keep_alive:
        lines.append("Connection: close")
    if "content-length" not in given and (body or method.upper() in {"POST", "PUT", "PATCH"}):
        lines.append(f"Content-Length: {len(body)}")
    if "user-agent" not in given:
        lines.append("User-Agent: kilocard")
    if "accept" not in given:
        lines.append("Accept: */*")
    return ("\r\n".join(lines) + "\r\n\r\n").encode("utf-8") + body
