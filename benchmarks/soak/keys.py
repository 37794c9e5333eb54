"""Keys are made and revoked while requests run, with the command that operators use."""

from __future__ import annotations

import asyncio
import json

from benchmarks.soak.clients import Client
from benchmarks.soak.cluster import KILOCARD
from benchmarks.soak.files import Layout
from benchmarks.soak.history import History
from benchmarks.soak.pauses import rest, until
from benchmarks.soak.results import End

#: seconds between two keys
PAUSE = 8.0
#: seconds in which gateways follow the store: about two, and the time of a request on a busy machine
FOLLOWED = 12.0
_UNKNOWN = frozenset({"invalid_api_key"})


class Keys:
    """`store`: held while somebody else locks the database on purpose."""

    def __init__(self, layout: Layout, client: Client, history: History, store: asyncio.Lock) -> None:
        self.made: list[str] = []
        self._layout = layout
        self._client = client
        self._history = history
        self._store = store

    async def run(self, stopping: asyncio.Event) -> None:
        while await rest(stopping, PAUSE):
            made = json.loads(await self._keys("create", self._client.tenant.name, "--json"))
            self.made.append(made["key"])
            self._client.key = made["key"]
            self._history.begin("key created", 0.0, 0.0)
            if await until(self._known, FOLLOWED) is None:
                self._history.violations.append(f"a new key was unknown for {FOLLOWED:g} s")
            for _ in range(5):
                if not await self._known():
                    self._history.violations.append("a key that was known is not any more")
            await self._keys("revoke", made["id"])
            self._history.begin("key revoked", 0.0, 0.0)
            if await until(self._unknown, FOLLOWED) is None:
                self._history.violations.append(f"a revoked key was taken for {FOLLOWED:g} s")
            for _ in range(3):
                if not await self._unknown():
                    self._history.violations.append("a revoked key is taken again")

        self._client.close()

    async def _known(self) -> bool:
        """Whatever else becomes of the request."""
        client = self._client
        body = client.chat(stream=False, tokens=1, length=4)
        result = await client.ask("with a key of the store", client.post(body), body, refusals=_UNKNOWN)
        return result.end is not End.REFUSED

    async def _unknown(self) -> bool:
        return not await self._known()

    async def _keys(self, *words: str) -> str:
        async with self._store:
            process = await asyncio.create_subprocess_exec(
                *KILOCARD, "keys", *words, "--store", str(self._layout.store),
                stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
            )  # fmt: skip
            out, err = await process.communicate()
        if process.returncode:
            raise RuntimeError(f"kilocard keys {' '.join(words)}: {err.decode()}")
        return out.decode()
