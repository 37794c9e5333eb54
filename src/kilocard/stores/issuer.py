"""An identity provider (OpenID Connect): its keys fetched, kept, followed; tokens checked with them."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Collection, Mapping
from urllib.parse import urlsplit

from kilocard.core.errors import CapacityError, KilocardError, StoreError
from kilocard.net.client import Client
from kilocard.spec.model import TenantSpec
from kilocard.spec.services import OidcSpec
from kilocard.stores.jwks import VerifyingKey, choose, need_cryptography, read_key_set, signed_claims
from kilocard.tenancy.access import Verified
from kilocard.tenancy.claims import good_until, is_younger, read_claims, read_header, refused, tenant_of
from kilocard.tenancy.keys import Source

log = logging.getLogger("kilocard.keys")

DISCOVERY = "/.well-known/openid-configuration"
#: seconds for one document
FETCH_TIMEOUT = 5.0
#: bytes of one document
LARGEST = 1024 * 1024
#: seconds between two fetches that tokens with unknown keys, or failures, can cause
AT_MOST_EACH = 10.0
#: seconds that a start waits for the first keys
START_WAIT = 2.0


class Issuer:
    """Checks tokens with the issuer's keys as they were last fetched, however long ago that was.

    Keys are fetched every `refresh` seconds, and when a token names a key that is not known: at most once in 10 s,
    whoever sends such tokens. `wall` is Unix time.
    """

    def __init__(self, oidc: OidcSpec, wall: Callable[[], float]) -> None:
        """Raises UsageError where the extra `oidc` is not whole."""
        need_cryptography()
        self._oidc = oidc
        self._wall = wall
        self._client = Client(keep_alive=False)
        self._declared: Collection[str] = ()
        self._changed: Callable[[], None] = lambda: None
        self._keys: tuple[VerifyingKey, ...] = ()
        self._body = b""
        self._problem: str | None = None
        #: loop times
        self._well_at: float | None = None
        self._asked_at = 0.0
        #: Unix time
        self._read_at = 0.0
        self._fetching = False
        #: the next fetch, where one is wanted before `refresh` is over
        self._timer: asyncio.TimerHandle | None = None
        self._wake = asyncio.Event()
        self._first = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def start(self, tenants: Mapping[str, TenantSpec], changed: Callable[[], None]) -> None:
        """`changed` is called when the keys are other ones. Waits a moment for the first keys, not for ever."""
        self._declared, self._changed = tenants, changed
        self._fetching = True
        self._task = asyncio.get_running_loop().create_task(self._run())
        try:
            async with asyncio.timeout(START_WAIT):
                await self._first.wait()
        except TimeoutError:
            pass  # the log says what became of it

    async def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self._client.close()

    def declare(self, tenants: Mapping[str, TenantSpec]) -> None:
        self._declared = tenants

    def source(self) -> Source:
        age = None if self._well_at is None else asyncio.get_running_loop().time() - self._well_at
        return Source("oidc", len(self._keys), self._problem, age)

    def verify(self, token: bytes) -> Verified:
        """Whose token this is. Raises Unauthorized, Forbidden; CapacityError where the issuer's keys are not known now.

        What is cheap comes first: a token is only worth cryptography if all else is right.
        """
        header = read_header(token)
        key = choose(self._keys, header)
        if key is None:
            raise self._unknown_key(token)
        now = self._wall()
        good_until(read_claims(token), self._oidc, now)
        claims = signed_claims(token, header, key)
        return Verified(tenant_of(claims, self._oidc, self._declared), good_until(claims, self._oidc, now))

    def _unknown_key(self, token: bytes) -> KilocardError:
        """It may be a new key of the issuer's: ask again, and let the client come back for the answer."""
        pause = self._asked_at + AT_MOST_EACH - asyncio.get_running_loop().time()
        if not self._fetching and pause <= 0:
            self._fetching = True
            self._wake.set()
        if self._fetching or self._problem is not None:
            return _ask_again(1.0 if self._fetching else AT_MOST_EACH)
        if is_younger(read_claims(token), self._read_at):
            self._ask_in(pause)
            return _ask_again(pause)
        return refused("the issuer has no such key")

    def _ask_in(self, seconds: float) -> None:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(seconds, self._wake.set)

    # -- the keys

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            self._fetching = True
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            asked = self._wall()
            try:
                await self._fetch()
            except Exception as error:  # whatever the issuer sends: the keys of before go on working
                self._note(error.message if isinstance(error, KilocardError) else f"{type(error).__name__}: {error}")
            else:
                self._note(None)
                self._read_at = asked
                self._well_at = loop.time()
            self._fetching = False
            self._asked_at = loop.time()
            self._first.set()
            self._wake.clear()
            pause = self._oidc.refresh if self._problem is None else min(self._oidc.refresh, AT_MOST_EACH)
            try:
                async with asyncio.timeout(pause):
                    await self._wake.wait()
            except TimeoutError:
                continue

    async def _fetch(self) -> None:
        url = self._oidc.jwks or await self._discovered()
        body = await self._get(url)
        if body == self._body:
            return
        try:
            keys = read_key_set(body)
        except (ValueError, RecursionError) as error:
            raise StoreError(f"{url}: {error}") from error
        self._keys, self._body = keys, body
        log.info("gateway.oidc: %d key(s) of %s", len(keys), self._oidc.issuer)
        self._changed()

    async def _discovered(self) -> str:
        """`jwks_uri` of the discovery document (OpenID Connect Discovery 1.0 §4)."""
        issuer = self._oidc.issuer
        url = issuer.rstrip("/") + DISCOVERY
        try:
            document = json.loads(await self._get(url))
        except (ValueError, RecursionError) as error:
            raise StoreError(f"{url}: it is no JSON ({error})") from error
        said, keys = (document.get("issuer"), document.get("jwks_uri")) if isinstance(document, dict) else (None, None)
        if said != issuer:
            raise StoreError(f"{url}: it is of the issuer {said!r}; write exactly that as gateway.oidc.issuer")
        if not isinstance(keys, str):
            raise StoreError(f"{url}: it names no jwks_uri; write the URL of the key set as gateway.oidc.jwks")
        if urlsplit(issuer).scheme == "https" and urlsplit(keys).scheme != "https":
            raise StoreError(f"{url}: its jwks_uri is not https, the issuer is")
        return keys

    async def _get(self, url: str) -> bytes:
        answer = await self._client.fetch(url, timeout=FETCH_TIMEOUT, max_bytes=LARGEST)
        if answer.status != 200:
            raise StoreError(f"{url}: it answered {answer.status}")
        return answer.body

    def _note(self, problem: str | None) -> None:
        """What is wrong is logged once for each cause, and so is its end."""
        if problem == self._problem:
            return
        self._problem = problem
        if problem is None:
            log.info("gateway.oidc: works again")
        else:
            log.warning("gateway.oidc: %s (the %d known key(s) go on working)", problem, len(self._keys))


def _ask_again(after: float) -> CapacityError:
    return CapacityError(
        "The issuer's keys are being fetched: this token can't be checked at the moment.",
        code="issuer_unavailable",
        retry_after=after,
    )
