"""The certificate that new connections get: `gateway.tls`, read again when its files have changed.

A pair that is broken, mismatched or unreadable changes nothing: the last good one stays. Connections that are open keep
what they began with.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
import stat
from dataclasses import dataclass
from pathlib import Path
from time import time  # noqa: TID251  # certificates expire by the calendar

from kilocard.core.errors import SpecError
from kilocard.gateway.certificate_dates import not_after
from kilocard.gateway.stillness import Stillness
from kilocard.metrics import names
from kilocard.metrics.render import Registry
from kilocard.spec.load import Digests, digests_of
from kilocard.spec.services import TlsSpec

log = logging.getLogger("kilocard.gateway")

#: seconds between two looks at the files
EVERY = 1.0


@dataclass(slots=True)
class Handshakes:
    """How they ended."""

    ok: int = 0
    #: bad, given up, or not finished in time
    failed: int = 0
    #: plain HTTP to the TLS port
    plain: int = 0
    #: more connections than limits.connections
    refused: int = 0


class Certificates:
    """A gateway's Part. `context` is for the next connection. Raises SpecError where the first pair is no good."""

    def __init__(self, spec: TlsSpec, registry: Registry) -> None:
        self._spec = spec
        self.handshakes = Handshakes()
        self.context, self._not_after = load(spec)
        self._files = Stillness(digests_of(_files(spec)))
        self._complained_of: Digests | None = None
        self._outcomes = {"ok": 0, "failed": 0}
        self._task: asyncio.Task[None] | None = None
        self._export(registry)

    async def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._watch(), name="certificate")

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def declare(self, spec: TlsSpec) -> None:
        """The cluster file was read again: other files, or the same and now is the time to look. Never raises."""
        digests = digests_of(_files(spec))
        if spec != self._spec or digests != self._files.known:
            self._read(spec, digests)

    async def look(self) -> None:
        digests = await asyncio.to_thread(digests_of, _files(self._spec))
        if self._files.news(digests):
            self._read(self._spec, digests)

    def _read(self, spec: TlsSpec, digests: Digests) -> None:
        self._spec = spec
        self._files.take(digests)
        try:
            self.context, self._not_after = load(spec)
        except SpecError as error:
            self._outcomes["failed"] += 1
            if digests != self._complained_of:
                self._complained_of = digests
                log.error("the certificate is not taken over, the last good one stays: %s", error)
        else:
            self._outcomes["ok"] += 1
            log.info("new connections get the certificate of %s", spec.certificate)

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(EVERY)
            await self.look()

    def _export(self, registry: Registry) -> None:
        until = registry.gauge(names.TLS_NOT_AFTER).only
        reads = registry.counter(names.TLS_RELOADS)
        handshakes = registry.counter(names.TLS_HANDSHAKES)

        def refresh() -> None:
            until.set(self._not_after)
            for outcome, count in self._outcomes.items():
                reads.labels(outcome).value = count
            done = self.handshakes
            for outcome in ("ok", "failed", "plain", "refused"):
                handshakes.labels(outcome).value = getattr(done, outcome)

        registry.before_page.append(refresh)


def load(spec: TlsSpec) -> tuple[ssl.SSLContext, float]:
    """A context, and when its certificate ends in Unix seconds. Raises SpecError: which key, and what to do."""
    for key in ("certificate", "key", "client_ca"):
        path = getattr(spec, key)
        if path is None:
            continue
        try:
            if not stat.S_ISREG(Path(path).stat().st_mode):  # to open a pipe may take for ever
                raise OSError("it is no regular file")
            with Path(path).open("rb"):
                pass
        except OSError as error:
            why = error.strerror or str(error)
            raise SpecError(f"gateway.tls.{key}: {path} can't be read ({why}); name a PEM file") from error
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    context.set_alpn_protocols(["http/1.1"])
    try:
        context.load_cert_chain(spec.certificate, spec.key, password=lambda: "")
    except ssl.SSLError as error:
        raise SpecError(_what_is_wrong(spec, error)) from error
    if spec.client_ca is not None:
        context.verify_mode = ssl.CERT_REQUIRED
        try:
            context.load_verify_locations(spec.client_ca)
        except ssl.SSLError as error:
            raise SpecError(f"gateway.tls.client_ca: {spec.client_ca} holds no certificate in PEM form") from error
    try:
        ends = not_after(ssl.PEM_cert_to_DER_cert(_first_certificate(spec.certificate)))
    except ValueError as error:
        raise SpecError(f"gateway.tls.certificate: {spec.certificate}: {error}") from error
    if ends < time():
        log.warning("gateway.tls.certificate: %s has expired: clients will refuse it", spec.certificate)
    return context, ends


def _first_certificate(path: str) -> str:
    text = Path(path).read_text("ascii", "replace")
    begin, end = text.find(ssl.PEM_HEADER), text.find(ssl.PEM_FOOTER)
    return text[begin : end + len(ssl.PEM_FOOTER)]


#: what OpenSSL says of a key that is another certificate's: of the same kind of key, or (RSA, EC, Ed25519) of another
_ANOTHERS_KEY = frozenset({"KEY_VALUES_MISMATCH", "KEY_TYPE_MISMATCH", "NO_CERTIFICATE_ASSIGNED"})


def _what_is_wrong(spec: TlsSpec, error: ssl.SSLError) -> str:
    if error.reason in _ANOTHERS_KEY:
        return f"gateway.tls.key: {spec.key} is not the key of {spec.certificate}; replace both together"
    return (
        f"gateway.tls: {spec.certificate} and {spec.key} are no certificate and key in PEM form"
        f" ({error.reason or 'unreadable'}); a key with a passphrase can't be used"
    )


def _files(spec: TlsSpec) -> list[str]:
    return [spec.certificate, spec.key, *([spec.client_ca] if spec.client_ca is not None else [])]
