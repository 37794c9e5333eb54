"""Until when a certificate is good, out of its DER."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime

import pytest
import trustme
from hypothesis import given
from hypothesis import strategies as st

from kilocard.gateway.certificate_dates import not_after


def der(when: datetime) -> bytes:
    issued = trustme.CA().issue_cert("localhost", not_after=when)
    return ssl.PEM_cert_to_DER_cert(issued.cert_chain_pems[0].bytes().decode())


@pytest.mark.parametrize(
    "when",
    [datetime(2038, 1, 19, 3, 14, 8, tzinfo=UTC), datetime(2099, 12, 31, 23, 59, 59, tzinfo=UTC)],
    ids=["UTCTime", "GeneralizedTime"],
)
def test_both_ways_to_write_a_date(when: datetime) -> None:
    assert not_after(der(when)) == when.timestamp()


GOOD = der(datetime(2040, 1, 1, tzinfo=UTC))


@given(st.one_of(st.binary(max_size=60), st.integers(0, len(GOOD) - 1).map(lambda end: GOOD[:end])))
def test_whatever_is_no_certificate_is_a_value_error(data: bytes) -> None:
    with pytest.raises(ValueError):
        not_after(data)


@given(st.integers(0, len(GOOD) - 1), st.integers(0, 255))
def test_a_wrong_byte_is_a_date_or_a_value_error(at: int, byte: int) -> None:
    try:
        not_after(GOOD[:at] + bytes([byte]) + GOOD[at + 1 :])
    except ValueError:
        return
