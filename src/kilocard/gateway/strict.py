"""What llhttp lets pass and another reader refuses, or reads in another way: refused here. docs/protection.md has the
whole list, tests/integration/gateway/ambiguous.py what nginx makes of it.
"""

from __future__ import annotations

import re

from kilocard.core.errors import ClientError

#: RFC 3986 §3.2.2, §3.2.3. Anything else is read as a path, a user or a second name by somebody.
_HOST = re.compile(rb"(?:\[[0-9A-Za-z:.%]+\]|[A-Za-z0-9._~!$&'()*+,;=%-]+)(?::[0-9]*)?")
#: RFC 3986 has fewer signs; these can't be read in two ways. No "#": a fragment is not for servers (RFC 9112 §3.2).
_QUERY = re.compile(rb"[\x21\x22\x24-\x7e]*")
#: RFC 9112 §3.2.2; no user's name in it (RFC 9110 §4.2.4). What host it names makes no difference.
_ABSOLUTE = re.compile(rb"(?i:https?)://[^/#@]+(/[^#]*)?")


def refused(why: str) -> ClientError:
    return ClientError(f"Not a valid HTTP/1.1 request: {why}.", code="invalid_http")


def check_host(value: bytes) -> None:
    if not _HOST.fullmatch(value.strip(b" \t")):
        raise refused("what Host says is not a host")


def check_query(query: bytes) -> None:
    if not _QUERY.fullmatch(query):
        raise refused("the query has signs that are written as %XX, or a fragment (#)")


def only_chunked(value: bytes, again: bool, version: str) -> None:
    """RFC 9112 §6.1: in HTTP/1.0 the framing is faulty; other codings, or `chunked` twice, are what requests are
    smuggled with."""
    if version != "1.1":
        raise refused("Transfer-Encoding is of HTTP/1.1")
    if again or value.strip(b" \t").lower() != b"chunked":
        raise refused("the one Transfer-Encoding that is read here is 'chunked'")


def path_of(target: bytes) -> bytes:
    """The path of a target, without its query, that does not begin with a slash."""
    if target == b"*":
        return target  # no route has its name
    match = _ABSOLUTE.fullmatch(target)
    if match is None:
        raise refused("what it asks for is neither a path nor an http:// URL")
    return match[1] or b"/"
