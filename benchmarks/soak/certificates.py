"""TLS for the run: an authority of its own, and a certificate that is replaced every few seconds."""

from __future__ import annotations

import asyncio
import random
import ssl
import time
from pathlib import Path

import trustme

from benchmarks.soak.history import History
from benchmarks.soak.pauses import rest, until

PAUSE = (4.0, 9.0)
#: seconds in which new connections see a new certificate: two looks a second apart, and a busy machine
FOLLOWED = 8.0


class Certificates:
    def __init__(self, folder: Path, seed: int) -> None:
        self.certificate, self.key = folder / "tls.crt", folder / "tls.key"
        self.client = ssl.create_default_context()
        self._authority = trustme.CA()
        self._authority.configure_trust(self.client)
        self._rng = random.Random(seed + 44)
        self._issue()

    def _issue(self) -> bytes:
        """A new pair; what is written first does not fit to what is still there. Returns the certificate as DER."""
        pair = self._authority.issue_cert("127.0.0.1")
        self.key.write_bytes(pair.private_key_pem.bytes())
        chain = pair.cert_chain_pems[0].bytes()
        self.certificate.write_bytes(chain)
        return ssl.PEM_cert_to_DER_cert(chain.decode())

    async def run(self, port: int, history: History, stopping: asyncio.Event, *, rubbish: bool) -> None:
        """Replace the pair now and then; with `rubbish` every third time by that first, which has to change nothing."""
        count = 0
        while await rest(stopping, self._rng.uniform(*PAUSE)):
            count += 1
            if rubbish and count % 3 == 0:
                shown = await self._shown(port)
                self.certificate.write_text("no certificate")
                history.begin("certificate: broken", time.monotonic(), time.monotonic())
                await asyncio.sleep(3.0)
                if await self._shown(port) not in (shown, None):
                    history.violations.append("a broken certificate changed something")
            wanted = self._issue()
            history.begin("certificate: new", time.monotonic(), time.monotonic())

            async def shown_now(wanted: bytes = wanted) -> bool:
                return await self._shown(port) == wanted

            if await until(shown_now, FOLLOWED) is None:
                history.violations.append(f"a new certificate was not used within {FOLLOWED:g} s")

    async def _shown(self, port: int) -> bytes | None:
        """The certificate that a new connection sees; None: there was no connection (its worker has just died)."""
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=self.client, server_hostname="127.0.0.1")
        except OSError:
            return None
        tls: ssl.SSLObject = writer.get_extra_info("ssl_object")
        found = tls.getpeercert(binary_form=True)
        writer.close()
        return found
