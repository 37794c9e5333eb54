"""Addresses in rendered files: where somebody listens is not always where others reach it."""

from __future__ import annotations

from kilocard.core.errors import UsageError
from kilocard.spec.units import Address, UnitError, listen_address


def given(option: str, value: str) -> Address:
    """What an option says. Raises UsageError that names it."""
    try:
        return listen_address(value)
    except UnitError as error:
        raise UsageError(f"{option} {error.problem}: {error.advice}") from None


def reachable(option: str, key: str, value: str) -> Address:
    """Who listens on all addresses is reached on this machine's own. `key` of the cluster file may name port 0, any
    free one, which nobody can know: a UsageError that asks for `option`."""
    at = given(option, value)
    if not at.port:
        raise UsageError(f"{key} is {value}, any free port: name it with {option} host:port")
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(at.host, at.host)  # noqa: S104  # only compared
    return at._replace(host=host)
