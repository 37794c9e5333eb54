"""Text to numbers: durations, sizes, addresses, shares. Each function raises UnitError with what to write instead."""

from __future__ import annotations

import ipaddress
import math
import re
from decimal import Decimal
from typing import NamedTuple

#: the longest duration that makes sense in a cluster file, in seconds
LONGEST = 366 * 86_400.0

_SECONDS = {
    "us": Decimal("0.000001"),
    "µs": Decimal("0.000001"),
    "ms": Decimal("0.001"),
    "s": Decimal(1),
    "m": Decimal(60),
    "h": Decimal(3600),
    "d": Decimal(86_400),
}
_DURATION_PART = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,9})?)\s*([a-zA-Zµ]*)\s*", re.ASCII)

# k, M, G, T are powers of 1000 and Ki, Mi, Gi, Ti powers of 1024, as in Kubernetes; a B may follow.
_BYTES = {"": 1, "b": 1}
for _power, _letter in enumerate("kmgt", 1):
    for _tail in ("", "b"):
        _BYTES[_letter + _tail] = 1000**_power
        _BYTES[_letter + "i" + _tail] = 1024**_power
_SIZE = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,9})?)\s*([a-zA-Z]*)", re.ASCII)

_HOST_LABEL = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?", re.ASCII)


class UnitError(ValueError):
    """A value that can't be read: `problem` says what is wrong, `advice` what to write."""

    def __init__(self, problem: str, advice: str) -> None:
        super().__init__(f"{problem}; {advice}")
        self.problem = problem
        self.advice = advice


class Address(NamedTuple):
    """A host (name, IPv4, or IPv6 without brackets) and a TCP port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def number(value: object, advice: str) -> float:
    """A finite float from an int or a float; bool, NaN and infinity are refused."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise UnitError(f"is {kind_of(value)}, not a number", advice)
    try:
        result = float(value)
    except OverflowError:
        raise UnitError("is far too large", advice) from None
    if not math.isfinite(result):
        raise UnitError("is not a finite number", advice)
    return result


def duration(value: object) -> float:
    """Seconds from `30s`, `5m`, `1h30m`, `250ms`, `1.5h`, or from a plain number of seconds."""
    advice = "write a duration such as 250ms, 30s, 5m or 1h30m (a plain number means seconds)"
    if isinstance(value, str):
        seconds = _duration_text(value, advice)
    else:
        seconds = number(value, advice)
    if seconds < 0:
        raise UnitError("is negative", advice)
    if seconds > LONGEST:
        raise UnitError("is more than a year", advice)
    return seconds


def _duration_text(text: str, advice: str) -> float:
    text = text.strip()
    if not text:
        raise UnitError("is empty", advice)
    total, position, previous = Decimal(0), 0, Decimal("Infinity")
    while position < len(text):
        part = _DURATION_PART.match(text, position)
        if part is None:
            raise UnitError(f"is {show(text)}, which is no duration", advice)
        amount, unit = part.groups()
        if not unit and position == 0 and part.end() == len(text):
            return float(amount)  # a number in quotes
        scale = _SECONDS.get(unit)
        if scale is None:
            known = "us, ms, s, m, h and d"
            problem = f"has the unit {show(unit)}" if unit else f"is {show(text)}, in which a unit is missing"
            raise UnitError(f"{problem}; the units are {known}", advice)
        if scale >= previous:
            raise UnitError(f"is {show(text)}, whose units don't go from large to small, each once", advice)
        total, position, previous = total + Decimal(amount) * scale, part.end(), scale
    return float(total)


def size(value: object) -> int:
    """Bytes from `32MiB`, `64k` (64,000), `64Ki` (65,536), `1.5G`, or from a plain whole number of bytes."""
    advice = "write a size such as 64KiB, 32MiB or 1GiB (a plain number means bytes)"
    if isinstance(value, str):
        match = _SIZE.fullmatch(value.strip())
        if match is None:
            raise UnitError(f"is {show(value)}, which is no size", advice)
        amount, unit = match.groups()
        scale = _BYTES.get(unit.lower())
        if scale is None:
            raise UnitError(
                f"has the unit {show(unit)}; the units are k, M, G, T (1000) and Ki, Mi, Gi, Ti (1024)", advice
            )
        exact = Decimal(amount) * scale
        if exact != exact.to_integral_value():
            raise UnitError(f"is {show(value)}, which is no whole number of bytes", advice)
        return int(exact)
    if isinstance(value, float) and math.isfinite(value) and value != int(value):
        raise UnitError("is no whole number of bytes", advice)
    bytes_ = number(value, advice)
    if bytes_ < 0:
        raise UnitError("is negative", advice)
    if bytes_ > 2**60:
        raise UnitError("is far too large", advice)
    return int(bytes_)


def share(value: object) -> float:
    """A share from 0 to 1, also written as a percentage: `95%`."""
    advice = "write a share from 0 to 1, or a percentage such as 95%"
    if isinstance(value, str):
        match = re.fullmatch(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)\s*%", value.strip(), re.ASCII)
        if match is None:
            raise UnitError(f"is {show(value)}, which is no share", advice)
        result = float(Decimal(match.group(1)) / 100)
    else:
        result = number(value, advice)
        if 1 < result <= 100:
            raise UnitError(f"is {value}, more than the whole", f"write {value}% or {result / 100:g}")
    if not 0 <= result <= 1:
        raise UnitError("is outside 0 to 1", advice)
    return result


def host(text: str) -> str:
    """A host name or IP address, lower case, IPv6 without brackets. Names may have underscores, as Compose's do."""
    advice = "write a name or an IP address (IPv6 in brackets: [::1])"
    if text.startswith("[") or ":" in text:
        if not (text.startswith("[") and text.endswith("]")):
            raise UnitError(f"has the host {show(text)}", advice)
        try:
            return str(ipaddress.IPv6Address(text[1:-1]))
        except ValueError:
            raise UnitError(f"has {show(text)}, which is no IPv6 address", advice) from None
    if re.fullmatch(r"[0-9.]+", text, re.ASCII):
        try:
            return str(ipaddress.IPv4Address(text))
        except ValueError:
            raise UnitError(f"has {show(text)}, which is no IPv4 address", advice) from None
    labels = text.removesuffix(".").split(".")
    if len(text) > 253 or not all(_HOST_LABEL.fullmatch(label) for label in labels):
        raise UnitError(f"has the host {show(text)}", advice)
    return text.lower()


def port(text: str, *, lowest: int = 1) -> int:
    """A TCP port; `lowest=0` allows 0, "any free one"."""
    if not re.fullmatch(r"[0-9]{1,6}", text, re.ASCII) or not lowest <= int(text) <= 65_535:
        raise UnitError(f"has the port {show(text)}", f"ports are whole numbers from {lowest} to 65535")
    return int(text)


def address(value: object, *, lowest_port: int = 1) -> Address:
    """`host:port`, `[ipv6]:port`."""
    advice = "write host:port, e.g. 127.0.0.1:8000 (this machine only) or 0.0.0.0:8000 (every interface)"
    if not isinstance(value, str):
        raise UnitError(f"is {kind_of(value)}, not host:port", advice)
    text = value.strip()
    if "@" in text:
        raise UnitError("has a user name or password in it", advice)
    if "://" in text:
        raise UnitError(f"is the URL {show(text)}", advice)
    name, colon, digits = text.rpartition(":")
    if not colon or text.endswith("]"):
        raise UnitError(f"is {show(text)}, which has no port", advice)
    if not name or name == "*":
        raise UnitError(f"is {show(text)}, which has no host", advice)
    return Address(host(name), port(digits, lowest=lowest_port))


def listen_address(value: object) -> Address:
    """An address to listen on: like `address`, and port 0 is any free one."""
    return address(value, lowest_port=0)


def format_duration(seconds: float) -> str | float:
    """`90.0` → `1m30s`; a number that the units don't fit exactly stays a number of seconds."""
    if not seconds:
        return "0s"
    left, text = Decimal(repr(seconds)), ""
    for unit, scale in (("d", 86_400), ("h", 3600), ("m", 60)):
        whole, left = divmod(left, scale)
        text += f"{whole}{unit}" if whole else ""
    if left >= 1 or (text and left):
        text += f"{left.normalize():f}s"
    elif left:
        text += f"{(left * 1000).normalize():f}ms"
    try:
        return text if duration(text) == seconds else seconds
    except UnitError:
        return seconds


def format_size(size_: int) -> str | int:
    """`33554432` → `32MiB`; a number that is no multiple of KiB stays a number of bytes."""
    for unit, scale in (("TiB", 1024**4), ("GiB", 1024**3), ("MiB", 1024**2), ("KiB", 1024)):
        if size_ and size_ % scale == 0:
            return f"{size_ // scale}{unit}"
    return size_


def kind_of(value: object) -> str:
    """What a YAML value is, in words, without the value itself."""
    match value:
        case None:
            return "empty"
        case bool():
            return "true or false"
        case int() | float():
            return "a number"
        case str():
            return "text"
        case dict():
            return "a mapping"
        case list() | tuple():
            return "a list"
    return f"a {type(value).__name__}"


#: `user:password@` at the beginning, with whatever stands for the scheme, up to the last @: passwords have them too
_CREDENTIALS = re.compile(r"(?:[A-Za-z+]*:/+)?[^/@]*:.*@", re.DOTALL)


def _without_credentials(text: str) -> str:
    found = _CREDENTIALS.match(text) if "@" in text else None  # without one it would look for it from every colon
    return text if found is None else f"…@{text[found.end() :]}"


def show(value: object) -> str:
    """A value as it may stand in a message: short, on one line, whatever it is, and without a URL's password."""
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "nothing"}[value]
    if isinstance(value, str):
        text = _without_credentials(value)
        text = text if len(text) <= 60 else text[:57] + "…"
        return '"' + "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text) + '"'
    if isinstance(value, int):
        return str(value) if abs(value) < 10**18 else "a huge number"
    if isinstance(value, float):
        return repr(value)
    return kind_of(value)
