"""URLs and request heads."""

from __future__ import annotations

import httptools
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kilocard.core.errors import UsageError
from kilocard.net.target import parse_target, request_bytes


@pytest.mark.parametrize(
    ("url", "host", "port", "path", "authority"),
    [
        ("http://10.0.0.1:8000", "10.0.0.1", 8000, "/", "10.0.0.1:8000"),
        ("http://engine/metrics?a=1&b=x%20y", "engine", 80, "/metrics?a=1&b=x%20y", "engine"),
        ("https://[::1]:6443/api", "::1", 6443, "/api", "[::1]:6443"),
        ("https://[::1]", "::1", 443, "/", "[::1]"),
        ("http://h:1/模型", "h", 1, "/%E6%A8%A1%E5%9E%8B", "h:1"),
    ],
)
def test_parts_of_a_url(url: str, host: str, port: int, path: str, authority: str) -> None:
    target = parse_target(url)
    assert (target.host, target.port, target.path, target.authority) == (host, port, path, authority)


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("10.0.0.1:8000", "no scheme"),
        ("ftp://h/x", "scheme 'ftp'"),
        ("file:///etc/passwd", "scheme 'file'"),
        ("http://", "names no host"),
        ("http://h:99999/", "not a URL"),
        ("http://[::1/", "not a URL"),
        ("http://user:secret@h/", "user name"),
        ("http://h/a b", "a space"),
    ],
)
def test_other_urls_are_refused_with_the_reason(url: str, says: str) -> None:
    with pytest.raises(UsageError, match=says) as caught:
        parse_target(url)
    assert "secret" not in str(caught.value)


def test_a_request_has_what_http_needs() -> None:
    head = request_bytes(parse_target("http://h:1/p"), "post", [("X-A", "1")], b"abc", keep_alive=False)
    assert head.startswith(b"POST /p HTTP/1.1\r\nHost: h:1\r\nX-A: 1\r\nConnection: close\r\nContent-Length: 3\r\n")
    assert head.endswith(b"\r\n\r\nabc")


def test_what_the_caller_sets_is_not_set_twice() -> None:
    head = request_bytes(
        parse_target("http://h/"), "GET", [("HOST", "other"), ("accept", "text/plain")], b"", keep_alive=True
    )
    assert head.lower().count(b"host:") == 1
    assert head.lower().count(b"accept:") == 1


@pytest.mark.parametrize("header", [("a\r\nb", "1"), ("a", "1\r\nb: 2"), ("a b", "1"), ("", "1"), ("a:", "1")])
def test_a_header_can_not_smuggle_another(header: tuple[str, str]) -> None:
    with pytest.raises(UsageError, match="can't be sent"):
        request_bytes(parse_target("http://h/"), "GET", [header], b"", keep_alive=True)


@pytest.mark.parametrize("method", ["", "GE T", "GET\r\n", "GÉT"])
def test_a_method_is_letters(method: str) -> None:
    with pytest.raises(UsageError, match="not an HTTP method"):
        request_bytes(parse_target("http://h/"), method, [], b"", keep_alive=True)


class _Seen:
    url = b""
    whole = False

    def on_url(self, url: bytes) -> None:
        self.url += url

    def on_message_complete(self) -> None:
        self.whole = True


@settings(max_examples=100)
@given(path=st.text(max_size=20), query=st.text(max_size=20), body=st.binary(max_size=20))
def test_any_url_that_is_taken_makes_exactly_one_request(path: str, query: str, body: bytes) -> None:
    try:
        target = parse_target(f"http://h/{path}?{query}")
    except UsageError:
        return
    seen = _Seen()
    parser = httptools.HttpRequestParser(seen)
    parser.feed_data(request_bytes(target, "POST", [], body, keep_alive=True))
    assert seen.whole
    assert seen.url.decode() == target.path
