"""Until when a certificate is good. Pure: the few lines of DER that it takes (RFC 5280, 4.1)."""

from __future__ import annotations

from datetime import UTC, datetime

_SEQUENCE, _UTC_TIME, _GENERALIZED_TIME = 0x30, 0x17, 0x18
_VERSION = 0xA0


def not_after(der: bytes) -> float:
    """Unix seconds. Raises ValueError for what is no certificate."""
    try:
        certificate, _ = _inside(der, 0)
        fields, _ = _inside(der, certificate)
        if der[fields] == _VERSION:
            fields = _after(der, fields)
        for _ in range(3):  # serial number, signature algorithm, issuer
            fields = _after(der, fields)
        start, _ = _inside(der, fields)
        begin, end = _bounds(der, _after(der, start))
        kind, text = der[_after(der, start)], der[begin:end].decode("ascii")
        if kind == _UTC_TIME:
            year = int(text[:2])
            text = f"{1900 + year if year >= 50 else 2000 + year}{text[2:]}"
        elif kind != _GENERALIZED_TIME:
            raise ValueError("no date where one should be")
        return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC).timestamp()
    except (IndexError, UnicodeDecodeError) as error:
        raise ValueError("not a whole certificate") from error


def _bounds(der: bytes, at: int) -> tuple[int, int]:
    """Where the content of the element at `at` begins and ends."""
    length, begin = der[at + 1], at + 2
    if length & 0x80:
        octets = length & 0x7F
        length = int.from_bytes(der[begin : begin + octets])
        begin += octets
    if begin + length > len(der):
        raise ValueError("an element is longer than the certificate")
    return begin, begin + length


def _inside(der: bytes, at: int) -> tuple[int, int]:
    if der[at] != _SEQUENCE:
        raise ValueError("no sequence where one should be")
    return _bounds(der, at)


def _after(der: bytes, at: int) -> int:
    return _bounds(der, at)[1]
