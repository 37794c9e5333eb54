"""Ports: free, each handed out once."""

from __future__ import annotations

import socket

import pytest

from kilocard.backends import ports
from kilocard.core.errors import BackendError


def test_no_port_is_handed_out_twice_and_taken_ones_are_passed_over() -> None:
    hand = ports.Ports(offset=5)
    first = hand.take()
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        assert not hand.is_free(other.getsockname()[1])
    assert ports.FIRST <= first <= ports.LAST
    assert len({first, *(hand.take() for _ in range(20))}) == 21


def test_a_port_that_somebody_listens_on_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    busy = {ports.FIRST, ports.FIRST + 1}
    monkeypatch.setattr(ports.Ports, "is_free", lambda self, port: port not in busy)
    assert ports.Ports(offset=0).take() == ports.FIRST + 2


def test_given_back_ports_come_again_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports.Ports, "is_free", lambda self, port: True)
    monkeypatch.setattr(ports, "SPAN", 3)
    hand = ports.Ports(offset=0)
    assert [hand.take() for _ in range(3)] == [ports.FIRST, ports.FIRST + 1, ports.FIRST + 2]
    with pytest.raises(BackendError, match=r"no free port on 127\.0\.0\.1"):
        hand.take()
    hand.give_back(ports.FIRST + 1)
    assert hand.take() == ports.FIRST + 1
