"""Replicas behind one DNS name (a headless Service, Consul, a plain zone): its addresses, asked for again and again."""

from __future__ import annotations

import asyncio
import socket

from kilocard.core.errors import UpstreamError, UsageError
from kilocard.core.replica import Endpoint
from kilocard.net.target import parse_target
from kilocard.scrape.discovery.source import Repeating, Report, endpoint_at
from kilocard.scrape.roster import Roster


class DnsDiscovery:
    """One replica per address of `host:port`, resolved every `every` seconds.

    An address that is no longer in the answer is Leaving, and Lost `grace` seconds later. An error of the
    resolver (which includes "no such name") keeps what is known. Where the name has IPv4 and IPv6 addresses only the
    IPv4 ones are taken, because they are mostly the same machines.
    """

    def __init__(self, pool: str, address: str, *, every: float = 5.0, grace: float = 120.0) -> None:
        target = parse_target(address if "://" in address else f"http://{address}")
        if target.path != "/" or ":" not in address.removeprefix(f"{target.scheme}://"):
            raise UsageError(f"pool {pool}: dns {address!r} must be host:port")
        self.name = f"DNS {target.host}:{target.port} of pool {pool}"
        self._pool, self._target, self._every = pool, target, every
        self._roster = Roster(grace)
        self._report: Report | None = None
        self._loop = Repeating(self.name, self._step, lambda: every)

    @property
    def problem(self) -> str | None:
        return self._loop.problem

    def start(self, report: Report) -> None:
        self._report = report
        self._loop.start()

    async def close(self) -> None:
        await self._loop.close()

    async def _step(self) -> float:
        assert self._report is not None
        loop = asyncio.get_running_loop()
        gone = f"its address is no longer one of {self._target.host}"
        try:
            answer = await loop.getaddrinfo(
                self._target.host, self._target.port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP
            )
        except (OSError, UnicodeError) as error:
            for change in self._roster.expire(loop.time(), gone):
                self._report(change)
            why = getattr(error, "strerror", None) or str(error)
            raise UpstreamError(f"can't resolve {self._target.host}: {why}", code="dns_failed") from error
        hosts: dict[int, list[str]] = {}
        for family, _, _, _, place in answer:
            hosts.setdefault(family, []).append(str(place[0]))
        endpoints = self._endpoints(hosts)
        if not endpoints:
            raise UpstreamError(f"{self._target.host} resolved to no address", code="dns_failed")
        self._loop.trouble(None)
        for change in self._roster.update(loop.time(), endpoints, {}, gone):
            self._report(change)
        return self._every

    def _endpoints(self, hosts: dict[int, list[str]]) -> dict[str, Endpoint]:
        """`hosts`: addresses by family."""
        found = {}
        for host in hosts.get(socket.AF_INET) or [f"[{h}]" for h in hosts.get(socket.AF_INET6, ())]:
            endpoint = endpoint_at(self._pool, f"{self._target.scheme}://{host}:{self._target.port}")
            found[endpoint.replica] = endpoint
        return found
