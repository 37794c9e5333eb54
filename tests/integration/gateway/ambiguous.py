"""Requests that two readers may read in two ways: a corpus for the differential test against nginx.

Each case is the bytes of one request to /v1/chat/completions. TAKEN names those that our gateway passes on, all with
the body BODY; it refuses the others. STRICTER and LOOSER say why, where nginx 1.22 does otherwise: RFC 9112, unless
another is named.
"""

from __future__ import annotations

from typing import NamedTuple

BODY = b'{"model":"m"}'
PATH = b"/v1/chat/completions"


class Case(NamedTuple):
    name: str
    raw: bytes


def request(
    *lines: bytes, body: bytes = BODY, target: bytes = PATH, method: bytes = b"POST", version: bytes = b"HTTP/1.1"
) -> bytes:
    """With exactly these lines: no Host, no length of its own."""
    first = b" ".join([method, target, version])
    return b"\r\n".join([first, *lines]) + b"\r\n\r\n" + body


HOST = b"Host: gateway"
TYPE = b"Content-Type: application/json"
LENGTH = b"Content-Length: %d" % len(BODY)
CODED = b"Transfer-Encoding: chunked"
CHUNKS = b"%x\r\n%b\r\n0\r\n\r\n" % (len(BODY), BODY)


def case(name: str, *lines: bytes, body: bytes = BODY, **more: bytes) -> Case:
    """A Host and a type, then these lines."""
    return Case(name, request(HOST, TYPE, *lines, body=body, **more))


def length(value: bytes) -> Case:
    return case(f"CL{value!r}", b"Content-Length:" + value)


def coding(value: bytes, *more: bytes) -> Case:
    return case(f"TE{[value, *more]!r}", b"Transfer-Encoding:" + value, *more, body=CHUNKS)


def chunks(name: str, coded: bytes) -> Case:
    return case(f"chunks: {name}", CODED, body=coded)


CASES: list[Case] = [
    case("usual", LENGTH),
    case("usual, chunked", CODED, body=CHUNKS),
    # both lengths
    case("CL and TE", LENGTH, CODED, body=CHUNKS),
    case("TE and CL", CODED, LENGTH, body=CHUNKS),
    case("CL 0 and TE", b"Content-Length: 0", CODED, body=CHUNKS),
    case("CL and TE identity", LENGTH, b"Transfer-Encoding: identity"),
    case("CL, TE in odd case", LENGTH, b"tRANSFER-eNCODING: chunked", body=CHUNKS),
    case("TE behind a tab, CL", b"Transfer-Encoding:\tchunked", LENGTH, body=CHUNKS),
    # Content-Length
    length(b""), length(b" "), length(b" +13"), length(b" -13"), length(b" 013"), length(b" 0x0d"), length(b" 0d"),
    length(b" 1_3"), length(b" 13 "), length(b" 13\t"), length(b"\t13"), length(b"13"), length(b" 13,"),
    length(b" 13, 13"), length(b" 13,14"), length(b" 1 3"), length(b" 13;x"), length(b" 13.0"), length(b" 1.3e1"),
    length(b' "13"'), length(b" 99999999999999999999"), length(b" 18446744073709551629"), length(b" 4294967309"),
    length(b" \xef\xbc\x91\xef\xbc\x93"), length(b" 0000000000000000000000000000013"), length(b" \x0b13"),
    length(b" 13\x0c"), length(b" 13\x00"), length(b" --13"), length(b" chunked"),
    case("two lengths, the same", LENGTH, LENGTH),
    case("two lengths, different", LENGTH, b"Content-Length: 5"),
    case("two lengths, different, the other way", b"Content-Length: 5", LENGTH),
    case("two lengths, the first empty", b"Content-Length:", LENGTH),
    case("a length and one with an underscore", LENGTH, b"Content_Length: 5"),
    case("only a length with an underscore", b"Content_Length: 13"),
    case("space before the colon of a length", b"Content-Length : 13"),
    case("tab before the colon of a length", b"Content-Length\t: 13"),
    case("space in front of a length", LENGTH, b" Content-Length: 5"),
    case("a length in a folded line", b"X-A: b\r\n Content-Length: 5", LENGTH),
    case("a length folded", b"Content-Length:\r\n 13"),
    case("a length folded behind its number", b"Content-Length: 1\r\n 3"),
    case("no length, and a body"),
    # Transfer-Encoding
    coding(b" Chunked"), coding(b" CHUNKED "), coding(b"chunked"), coding(b"  \tchunked"), coding(b" xchunked"),
    coding(b" chunkedx"), coding(b" chunked, identity"), coding(b" identity, chunked"), coding(b" identity"),
    coding(b" gzip, chunked"), coding(b" chunked, gzip"), coding(b" chunked, chunked"), coding(b" chunked,"),
    coding(b" ,chunked"), coding(b" chunked;q=1"), coding(b' "chunked"'), coding(b" chunked\x00"),
    coding(b" \x0bchunked"), coding(b" chunked\x0b"), coding(b""),
    coding(b" cow"), coding(b" chunk\xc3\xa9d"), coding(b" chunked\x85"),
    coding(b" chunked", b"Transfer-Encoding: chunked"), coding(b" chunked", b"Transfer-Encoding: identity"),
    coding(b" identity", b"Transfer-Encoding: chunked"), coding(b" chunked", b"Transfer-Encoding: cow"),
    coding(b" chunked", b"Transfer_Encoding: identity"), coding(b" chunked", b"Transfer-Encoding:"),
    case("space before the colon of TE", b"Transfer-Encoding : chunked", body=CHUNKS),
    case("TE behind a folded line", b"X-A: b\r\n Transfer-Encoding: chunked", LENGTH),
    case("TE folded", b"Transfer-Encoding:\r\n chunked", body=CHUNKS),
    case("TE behind a bare LF", b"X-A: b\nTransfer-Encoding: chunked", LENGTH, body=CHUNKS),
    case("TE behind a bare CR", b"X-A: b\rTransfer-Encoding: chunked", LENGTH, body=CHUNKS),
    case("TE with an underscore, and CL", LENGTH, b"Transfer_Encoding: chunked"),
    case("TE in HTTP/1.0", CODED, body=CHUNKS, version=b"HTTP/1.0"),
    case("TE and CL in HTTP/1.0", CODED, LENGTH, body=CHUNKS, version=b"HTTP/1.0"),
    case("CL that Connection names", LENGTH, b"Connection: close, content-length"),
    case("TE that Connection names", CODED, b"Connection: transfer-encoding", body=CHUNKS),
    case("Host that Connection names", LENGTH, b"Connection: host"),
    # chunks
    chunks("upper case", b"D\r\n%b\r\n0\r\n\r\n" % BODY),
    chunks("leading zeros", b"00000d\r\n%b\r\n0\r\n\r\n" % BODY),
    chunks("very many leading zeros", b"0" * 40 + b"d\r\n%b\r\n0\r\n\r\n" % BODY),
    chunks("an extension", b"d;a=b\r\n%b\r\n0;c\r\n\r\n" % BODY),
    chunks("an extension in quotes", b'd;a="b;c"\r\n%b\r\n0\r\n\r\n' % BODY),
    chunks("an extension with a line end in quotes", b'd;a="b\r\nc"\r\n%b\r\n0\r\n\r\n' % BODY),
    chunks("an extension with a bare LF", b"d;a=b\nc\r\n%b\r\n0\r\n\r\n" % BODY),
    chunks("an extension with a bare CR", b"d;a=b\rc\r\n%b\r\n0\r\n\r\n" % BODY),
    chunks("an extension with a NUL", b"d;a=\x00\r\n%b\r\n0\r\n\r\n" % BODY),
    chunks("an extension without a name", b"d;\r\n%b\r\n0\r\n\r\n" % BODY),
    chunks("space behind the size", b"d \r\n%b\r\n0\r\n\r\n" % BODY),
    chunks("space before the size", b" d\r\n%b\r\n0\r\n\r\n" % BODY),
    chunks("a tab behind the size", b"d\t\r\n%b\r\n0\r\n\r\n" % BODY),
    chunks("a plus", b"+d\r\n%b\r\n0\r\n\r\n" % BODY),
    chunks("a minus", b"-d\r\n%b\r\n0\r\n\r\n" % BODY),
    chunks("0x", b"0xd\r\n%b\r\n0\r\n\r\n" % BODY),
    chunks("an underscore", b"0_d\r\n%b\r\n0\r\n\r\n" % BODY),
    chunks("no size", b"\r\n%b\r\n0\r\n\r\n" % BODY),
    chunks("letters", b"xyz\r\n%b\r\n0\r\n\r\n" % BODY),
    chunks("an overflow", b"1000000000000000d\r\n%b\r\n0\r\n\r\n" % BODY),
    chunks("an overflow of 32 bits", b"10000000d\r\n%b\r\n0\r\n\r\n" % BODY),
    chunks("no line end behind the data", b"d\r\n%b0\r\n\r\n" % BODY),
    chunks("two bytes other than CRLF behind the data", b"d\r\n%bXX0\r\n\r\n" % BODY),
    chunks("a bare LF behind the size", b"d\n%b\r\n0\r\n\r\n" % BODY),
    chunks("a bare LF behind the data", b"d\r\n%b\n0\r\n\r\n" % BODY),
    chunks("a bare CR behind the size", b"d\r%b\r\n0\r\n\r\n" % BODY),
    chunks("a bare LF at the end", b"d\r\n%b\r\n0\n\n" % BODY),
    chunks("a smaller size than the data", b"a\r\n%b\r\n0\r\n\r\n" % BODY),
    chunks("a larger size than the data", b"1f\r\n%b\r\n0\r\n\r\n" % BODY),
    chunks("in two", b"2\r\n%b\r\nb\r\n%b\r\n0\r\n\r\n" % (BODY[:2], BODY[2:])),
    chunks("zeros at the end", b"d\r\n%b\r\n000\r\n\r\n" % BODY),
    chunks("a trailer", b"d\r\n%b\r\n0\r\nX-T: 1\r\n\r\n" % BODY),
    chunks("a length as trailer", b"d\r\n%b\r\n0\r\nContent-Length: 5\r\n\r\n" % BODY),
    chunks("TE as trailer", b"d\r\n%b\r\n0\r\nTransfer-Encoding: chunked\r\n\r\n" % BODY),
    chunks("Host as trailer", b"d\r\n%b\r\n0\r\nHost: other\r\n\r\n" % BODY),
    chunks("a folded trailer", b"d\r\n%b\r\n0\r\nX: a\r\n b\r\n\r\n" % BODY),
    chunks("a trailer without a colon", b"d\r\n%b\r\n0\r\nnonsense\r\n\r\n" % BODY),
    # lines
    case("a folded line", b"X-A: b\r\n c", LENGTH),
    case("a line folded with a tab", b"X-A: b\r\n\tc", LENGTH),
    case("a folded first line", b" X-A: b", LENGTH),
    case("a line without a colon", b"nonsense", LENGTH),
    case("an empty name", b": x", LENGTH),
    case("a space in a name", b"X A: b", LENGTH),
    case("a space before a colon", b"X-A : b", LENGTH),
    case("a name with a NUL", b"X-\x00A: b", LENGTH),
    case("a name in Latin-1", b"X-\xe9: b", LENGTH),
    case("a name with brackets", b"X(A): b", LENGTH),
    case("a name with a slash", b"X/A: b", LENGTH),
    case("a value with a NUL", b"X-A: b\x00c", LENGTH),
    case("a value with a bell", b"X-A: b\x07c", LENGTH),
    case("a value with DEL", b"X-A: b\x7fc", LENGTH),
    case("a value in UTF-8", "X-A: 读".encode(), LENGTH),
    case("a value in Latin-1", b"X-A: \xe9", LENGTH),
    case("a bare LF", b"X-A: b\nX-B: c", LENGTH),
    case("a bare CR", b"X-A: b\rX-B: c", LENGTH),
    case("CR CR LF", b"X-A: b\r", LENGTH),
    Case("only LFs", request(HOST, LENGTH).replace(b"\r\n", b"\n")),
    Case("an LF at the end of the head", request(HOST, LENGTH).replace(b"\r\n\r\n", b"\r\n\n")),
    case("very many lines", *[b"X-%d: y" % number for number in range(400)], LENGTH),
    case("a very long line", b"X-A: " + b"y" * 70_000, LENGTH),
    # Host
    Case("no Host", request(LENGTH)),
    Case("no Host in HTTP/1.0", request(LENGTH, version=b"HTTP/1.0")),
    Case("an empty Host", request(b"Host:", LENGTH)),
    case("two Hosts", b"Host: other", LENGTH),
    case("two Hosts, the same", HOST, LENGTH),
    Case("Host with a path", request(b"Host: a/b", LENGTH)),
    Case("Host with a name before it", request(b"Host: user@a", LENGTH)),
    Case("Host with a space", request(b"Host: a b", LENGTH)),
    Case("two in one Host", request(b"Host: a, b", LENGTH)),
    Case("Host with a NUL", request(b"Host: a\x00b", LENGTH)),
    Case("Host with a port", request(b"Host: a:8000", LENGTH)),
    Case("Host with a port that is none", request(b"Host: a:b", LENGTH)),
    Case("Host in IPv6", request(b"Host: [::1]:80", LENGTH)),
    Case("space before the colon of Host", request(b"Host : a", LENGTH)),
    # the first line
    case("absolute form", LENGTH, target=b"http://gateway" + PATH),
    case("absolute form of another host", LENGTH, target=b"http://10.9.8.7:1" + PATH),
    case("absolute form with a name", LENGTH, target=b"http://u:p@gateway" + PATH),
    case("absolute form of FTP", LENGTH, target=b"ftp://gateway" + PATH),
    case("authority form", LENGTH, target=b"gateway:80"),
    case("asterisk", LENGTH, target=b"*"),
    case("a fragment", LENGTH, target=PATH + b"#x"),
    case("a fragment behind a query", LENGTH, target=PATH + b"?a=b#c"),
    case("a query", LENGTH, target=PATH + b"?a=b&c=%0d%0a"),
    case("a query in UTF-8", LENGTH, target=PATH + b"?a=\xe8\xaf\xbb"),
    case("a query with a tab", LENGTH, target=PATH + b"?a=\tb"),
    case("a query with a NUL", LENGTH, target=PATH + b"?a=\x00"),
    case("a query with a space", LENGTH, target=PATH + b"?a=b c"),
    case("two slashes", LENGTH, target=b"/" + PATH),
    case("a path that goes up", LENGTH, target=b"/x/.." + PATH),
    case("a path that goes up, encoded", LENGTH, target=b"/x/%2e%2e" + PATH),
    case("a path with an encoded slash", LENGTH, target=b"/v1%2fchat/completions"),
    case("a path in parts encoded", LENGTH, target=b"/v1/chat/%63ompletions"),
    case("a path with a backslash", LENGTH, target=b"/v1\\chat\\completions"),
    case("no slash", LENGTH, target=PATH[1:]),
    case("HTTP/0.9", version=b"HTTP/0.9"),
    Case("HTTP/0.9, in short", b"GET " + PATH + b"\r\n\r\n"),
    case("HTTP/1.2", LENGTH, version=b"HTTP/1.2"),
    case("HTTP/2.0", LENGTH, version=b"HTTP/2.0"),
    case("HTTP/1.10", LENGTH, version=b"HTTP/1.10"),
    case("http/1.1", LENGTH, version=b"http/1.1"),
    case("HTTP/1.1 behind two spaces", LENGTH, version=b" HTTP/1.1"),
    case("HTTP/1.1 and a space", LENGTH, version=b"HTTP/1.1 "),
    case("HTTP/1,1", LENGTH, version=b"HTTP/1,1"),
    Case("the HTTP/2 preface", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
    Case("empty lines first", b"\r\n\r\n" + request(HOST, TYPE, LENGTH)),
    Case("an LF first", b"\n" + request(HOST, TYPE, LENGTH)),
    Case("a space first", b" " + request(HOST, TYPE, LENGTH)),
    Case("a NUL first", b"\x00" + request(HOST, TYPE, LENGTH)),
    case("a method in small letters", LENGTH, method=b"post"),
    case("a method in both", LENGTH, method=b"PoSt"),
    case("a method that is none", LENGTH, method=b"FOO"),
    case("a method with a tab", LENGTH, method=b"POST\t"),
    case("CONNECT", LENGTH, method=b"CONNECT", target=b"gateway:80"),
    case("GET with a body", LENGTH, method=b"GET"),
    case("HEAD with a body", LENGTH, method=b"HEAD"),
    case("TRACE", LENGTH, method=b"TRACE"),
    # Expect, Upgrade
    case("Expect", LENGTH, b"Expect: 100-continue"),
    case("Expect in odd case", LENGTH, b"eXpect: 100-CONTINUE"),
    case("Expect of something else", LENGTH, b"Expect: 200-ok"),
    case("two Expects", LENGTH, b"Expect: 100-continue", b"Expect: 100-continue"),
    case("an offer of HTTP/2", LENGTH, b"Connection: Upgrade, HTTP2-Settings", b"Upgrade: h2c", b"HTTP2-Settings: AAM"),
    case("an offer of a websocket", LENGTH, b"Connection: Upgrade", b"Upgrade: websocket"),
    case("an offer, and chunks", CODED, b"Connection: Upgrade", b"Upgrade: h2c", body=CHUNKS),
    # compressed
    case("gzip", LENGTH, b"Content-Encoding: gzip"),
    case("gzip and identity", LENGTH, b"Content-Encoding: gzip", b"Content-Encoding: identity"),
    case("identity", LENGTH, b"Content-Encoding: identity"),
    # more behind it
    case("stray bytes behind the body", LENGTH, body=BODY + b"xx"),
    case("a line end behind the body", LENGTH, body=BODY + b"\r\n"),
    case("half a request behind chunks", CODED, body=CHUNKS + b"PO"),
]  # fmt: skip


#: forwarded, with BODY as their body
TAKEN = {
    "usual", "usual, chunked", "CLb' 013'", "CLb' 13 '", "CLb' 13\\t'", "CLb'\\t13'", "CLb'13'",
    "CLb' 0000000000000000000000000000013'", "a length and one with an underscore", "TE[b' Chunked']",
    "TE[b' CHUNKED ']", "TE[b'chunked']", "TE[b'  \\tchunked']", "TE[b' chunked', b'Transfer_Encoding: identity']",
    "TE with an underscore, and CL", "CL that Connection names", "TE that Connection names",
    "Host that Connection names", "chunks: upper case", "chunks: leading zeros", "chunks: very many leading zeros",
    "chunks: an extension", "chunks: an extension in quotes", "chunks: in two", "chunks: zeros at the end",
    "chunks: a trailer", "chunks: Host as trailer", "a value in UTF-8", "a value in Latin-1", "no Host in HTTP/1.0",
    "Host with a port", "Host in IPv6", "absolute form", "absolute form of another host", "a query",
    "HTTP/1.1 behind two spaces", "empty lines first", "an LF first", "Expect", "Expect in odd case",
    "Expect of something else", "two Expects", "an offer of HTTP/2", "an offer of a websocket",
    "an offer, and chunks", "identity", "stray bytes behind the body", "a line end behind the body",
    "half a request behind chunks",
}  # fmt: skip

_OWS = "RFC 9110 §5.6.3: blanks around a value are spaces and tabs"
_TRAILER = "trailers that are read by the next one as framing, or that are no fields (§7.1.2)"
_EXTENSION = "§7.1.1 has no such chunk extension"
_LF = "§2.2: a line end is CRLF; an LF alone MAY be taken, and is what smuggling is made of"
_PATH = "routes are paths, byte for byte: nothing is decoded or tidied (404)"
_TOKEN = "RFC 9110 §5.6.2: a name is a token"
_VALUE = "RFC 9110 §5.5: no control signs in a value"

STRICTER = {
    "only a length with an underscore": "without a length it is a request without a body, which is refused for that",
    "no length, and a body": "the same",
    "chunks: an extension with a NUL": _EXTENSION,
    "chunks: an extension without a name": _EXTENSION,
    "chunks: space behind the size": _EXTENSION,
    "chunks: a tab behind the size": _EXTENSION,
    "chunks: a bare LF behind the size": _LF,
    "chunks: a bare LF behind the data": _LF,
    "chunks: a bare LF at the end": _LF,
    "chunks: a length as trailer": _TRAILER,
    "chunks: TE as trailer": _TRAILER,
    "chunks: a folded trailer": _TRAILER,
    "chunks: a trailer without a colon": _TRAILER,
    "a line without a colon": "§5: a field has one",
    "a name in Latin-1": _TOKEN,
    "a name with brackets": _TOKEN,
    "a name with a slash": _TOKEN,
    "a value with a bell": _VALUE,
    "a value with DEL": _VALUE,
    "a bare LF": _LF,
    "CR CR LF": "§2.2: a CR alone is no part of a line",
    "only LFs": _LF,
    "an LF at the end of the head": _LF,
    "very many lines": "256 lines are enough",
    "Host with a name before it": "§3.2: Host is a host and a port",
    "Host with a port that is none": "RFC 3986 §3.2.3: a port is digits",
    "absolute form of FTP": "what is asked for here is http or https",
    "a fragment": _PATH,
    "a fragment behind a query": "§3.2: a target has no fragment",
    "a query in UTF-8": "RFC 3986 §2: other signs are written as %XX",
    "two slashes": _PATH,
    "a path that goes up": _PATH,
    "a path that goes up, encoded": _PATH,
    "a path with an encoded slash": _PATH,
    "a path in parts encoded": _PATH,
    "a path with a backslash": _PATH,
    "HTTP/0.9, in short": "HTTP/0.9 has neither lengths nor statuses",
    "HTTP/1.2": "there is none",
    "HTTP/1.10": "there is none",
    "HTTP/1.1 and a space": "§3: the line ends behind the version",
    "a method that is none": "RFC 9110 §9.1: methods are registered; the routes take POST",
    "GET with a body": "the routes take POST (405)",
    "HEAD with a body": "the same",
    "gzip": "routing has to read the body (415)",
    "gzip and identity": "the same",
}

LOOSER = {
    "CLb' 13\\t'": _OWS,
    "CLb'\\t13'": _OWS,
    "TE[b'  \\tchunked']": _OWS,
    "two Expects": "RFC 9110 §10.1.1: Expect is a list; it ends here and is not passed on",
}
