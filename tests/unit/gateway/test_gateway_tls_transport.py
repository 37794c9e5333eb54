"""A TLS connection stands in for a transport: it has all that the gateway asks of one."""

from __future__ import annotations

import re
from pathlib import Path

import kilocard.gateway
from kilocard.gateway.tls_connection import TlsConnection

#: what connections to replicas and the TLS connection itself ask of a real transport
OTHERS = {"upstream.py", "replica_connections.py", "rival.py", "tls_connection.py"}


def test_whatever_is_asked_of_a_clients_transport_is_there_under_tls() -> None:
    asked = {
        name
        for file in Path(str(kilocard.gateway.__file__)).parent.glob("*.py")
        if file.name not in OTHERS
        for name in re.findall(r"\btransport\.(\w+)", file.read_text())
    }
    assert {"write", "abort", "get_write_buffer_size"} <= asked
    missing = {name for name in asked if not hasattr(TlsConnection, name)}
    assert missing <= {"write_eof"}, "asked for only where can_write_eof() says so"
