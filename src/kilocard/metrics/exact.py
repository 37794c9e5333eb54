"""The exact parser: Prometheus text 0.0.4 and OpenMetrics 1.0, the whole page, one sample a line.

It is the reference that the fast path is tested against, and the fallback for pages that are odd in any way.
Lenient where engines are sloppy (trailing commas, CRLF, indentation, blank lines), strict where leniency would
invent numbers: a line that does not follow the grammar is skipped and counted, and never spoils the page.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from kilocard.metrics.exposition_error import NotExposition

Labels = Mapping[str, str]

NO_LABELS: Labels = MappingProxyType({})


class Sample(NamedTuple):
    """One line. `timestamp` is as written: milliseconds in Prometheus text, seconds in OpenMetrics."""

    name: str
    labels: Labels
    value: float
    timestamp: float | None = None


class Page(NamedTuple):
    """All samples in page order, and how many lines were neither sample, comment nor blank."""

    samples: list[Sample]
    junk: int
    #: the body was one JSON string around the page (some llama.cpp builds)
    json_quoted: bool = False


# Possessive quantifiers keep hostile label text linear. Blanks are space and tab only: `\s` would also take
# characters that are part of names and values elsewhere (no-break space, U+2028).
_LINE = re.compile(
    r"""[ \t]*+
    (?P<name>[a-zA-Z_:][a-zA-Z0-9_:]*+)[ \t]*+
    (?:\{(?P<labels>(?:[^"{}]|"(?:[^"\\]|\\.)*+")*+)\}[ \t]*+|(?<=[ \t]))
    (?P<value>[^ \t]++)
    (?:[ \t]++(?P<timestamp>[-+0-9.eE]++))?+
    (?:[ \t]++\#[ \t]*+\{.*+)?+      # an OpenMetrics exemplar; its content does not matter here
    [ \t]*+""",
    re.VERBOSE | re.DOTALL,
)
_LABEL = re.compile(
    r"""[ \t]*+([a-zA-Z_][a-zA-Z0-9_]*+)[ \t]*+=[ \t]*+"((?:[^"\\]|\\.)*+)"[ \t]*+(,|\Z)""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPE = re.compile(r'\\([\\"n])')
_ESCAPED = {"\\": "\\", '"': '"', "n": "\n"}


def number(text: str) -> float | None:
    """A sample's value. None where it is no number; NaN and infinities are numbers here.

    Python would also take "1_000" and digits of other scripts, which no exporter means.
    """
    if "_" in text or not text.isascii():
        return None
    try:
        return float(text)
    except ValueError:
        return None


def parse_labels(text: str) -> Labels | None:
    """The part between the braces, unescaped. None where it breaks the grammar or names a label twice."""
    labels: dict[str, str] = {}
    at = 0
    end = len(text.rstrip(" \t"))
    while at < end:
        match = _LABEL.match(text, at)
        if match is None or match[1] in labels:
            return None
        value = match[2]
        if "\\" in value:
            value = _ESCAPE.sub(lambda escape: _ESCAPED[escape[1]], value)
        labels[match[1]] = value
        at = match.end()
    return MappingProxyType(labels)


def parse_line(line: str) -> Sample | None:
    """One sample line without its line end; None where it is not one (comments and blank lines included)."""
    match = _LINE.fullmatch(line)
    if match is None:
        return None
    value = number(match["value"])
    if value is None:
        return None
    timestamp = None
    if match["timestamp"] is not None:
        timestamp = number(match["timestamp"])
        if timestamp is None:
            return None
    inside = match["labels"]
    labels = NO_LABELS if inside is None else parse_labels(inside)
    if labels is None:
        return None
    return Sample(match["name"], labels, value, timestamp)


def parse(body: bytes) -> Page:
    """A whole page.

    Raises NotExposition for JSON, for HTML, and for other text in which not one line is a sample or a comment.
    An empty body is an empty page: an idle exporter is not an error.
    """
    text = body.decode("utf-8", "replace").removeprefix("\ufeff")
    start = text[:64].lstrip(" \t\r\n")[:1]
    quoted = start == '"'
    if quoted:
        text = _unquote(text, body)
    elif start in ("{", "["):
        raise NotExposition("JSON", body)
    elif start == "<":
        raise NotExposition("HTML or XML", body)
    samples: list[Sample] = []
    junk = comments = 0
    # Only "\n" ends a line: splitlines() would also cut at U+2028 and the like inside label values.
    for line in text.split("\n"):
        line = line.removesuffix("\r")
        bare = line.lstrip(" \t")
        if not bare:
            continue
        if bare[0] == "#":
            comments += 1
            continue
        sample = parse_line(line)
        if sample is None:
            junk += 1
        else:
            samples.append(sample)
    if junk and not samples and not comments:
        raise NotExposition("other text", body)
    return Page(samples, junk, quoted)


def _unquote(text: str, body: bytes) -> str:
    """llama.cpp builds of about b7010 to b7100 send the page as one JSON string."""
    try:
        inner = json.loads(text)
    except ValueError:
        inner = None
    if not isinstance(inner, str):
        raise NotExposition("a broken JSON string (a fault of llama.cpp b7010 to b7100: upgrade it)", body)
    return inner
