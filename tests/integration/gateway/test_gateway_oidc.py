"""Tokens of a real issuer over real HTTP, through the real gateway: good ones, forged ones, and an issuer that dies."""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import jwt
import pytest
import trustme
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from jwt.algorithms import ECAlgorithm, RSAAlgorithm
from stub_engine import Setup, answer, gateway_over, run, until, within

from kilocard.cli.wiring import key_ring
from kilocard.core.errors import UsageError
from kilocard.net.server import Answer, Reply, Request, Server
from kilocard.spec.model import GatewaySpec, TenantSpec
from kilocard.spec.services import OidcSpec
from kilocard.stores import issuer as issuer_shell
from kilocard.stores import jwks
from kilocard.stores.key_table import hash_of
from kilocard.stores.keyring import wall_clock

TENANTS = {"team-a": TenantSpec("team-a", keys=(hash_of("kc-a"),)), "team-b": TenantSpec("team-b", models=("other",))}
DISCOVERY = "/realm/.well-known/openid-configuration"


@cache
def rsa_key(number: int) -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


@cache
def ec_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


class Issuer:
    """An identity provider: discovery document, key set, and a hand for signing. May be stopped and started again."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.keys: dict[str, Any] = {"rsa-1": rsa_key(1), "ec-1": ec_key()}
        self.says: Callable[[str], Answer | None] = lambda path: None
        self.server = Server(self._answer)
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/realm"

    async def start(self) -> None:
        self.server = Server(self._answer)
        self.port = await self.server.start("127.0.0.1", self.port)

    async def stop(self) -> None:
        await self.server.close(grace=0.0)

    async def _answer(self, request: Request, reply: Reply) -> Answer:
        self.asked.append(request.path)
        said = self.says(request.path)
        if said is not None:
            return said
        if request.path == DISCOVERY:
            document = {"issuer": self.url, "jwks_uri": f"http://127.0.0.1:{self.port}/keys"}
            return Answer(200, "application/json", json.dumps(document))
        return Answer(200, "application/json", json.dumps({"keys": [self._jwk(name) for name in self.keys]}))

    def _jwk(self, name: str) -> dict[str, Any]:
        key = self.keys[name]
        kind = RSAAlgorithm if isinstance(key, rsa.RSAPrivateKey) else ECAlgorithm
        return {**json.loads(kind.to_jwk(key.public_key())), "kid": name, "use": "sig"}

    def token(self, name: str = "rsa-1", *, sign_with: Any = None, **claims: Any) -> str:
        key = sign_with or self.keys[name]
        algorithm = "RS256" if isinstance(key, rsa.RSAPrivateKey) else "ES256"
        said = {"iss": self.url, "aud": "kilocard", "exp": wall_clock() + 60, "tenant": "team-a"} | claims
        return jwt.encode(said, key, algorithm, headers={"kid": name})


@contextlib.asynccontextmanager
async def trusting(issuer: Issuer, tmp_path: Path, **oidc: Any) -> AsyncIterator[Setup]:
    """A gateway that takes the issuer's tokens."""
    wanted = OidcSpec(issuer=issuer.url, audience=("kilocard",), **oidc)
    async with gateway_over(answer, tenants=TENANTS) as setup:
        gateway = replace(GatewaySpec(), store=str(tmp_path / "none.db"), oidc=wanted)
        ring = key_ring(replace(setup.gateway.spec, gateway=gateway), setup.gateway)
        await ring.start()
        try:
            yield setup
        finally:
            await ring.close()


@contextlib.asynccontextmanager
async def issuing() -> AsyncIterator[Issuer]:
    one = Issuer()
    await one.start()
    try:
        yield one
    finally:
        await one.stop()


async def asked(setup: Setup, token: str) -> tuple[int, str]:
    """Status and error code ("" for none)."""
    response = await setup.post({"model": "m"}, headers=[("authorization", f"Bearer {token}")])
    return response.status, json.loads(response.body).get("error", {}).get("code", "")


def gauge(setup: Setup, name: str) -> float | None:
    page = setup.gateway.plane.telemetry.registry.render().decode()
    for line in page.splitlines():
        if line.startswith(name + '{source="oidc"}'):
            return float(line.rpartition(" ")[2])
    return None


def test_good_tokens_get_in_beside_keys_and_no_engine_sees_one(tmp_path: Path) -> None:
    async def story() -> None:
        async with issuing() as issuer, trusting(issuer, tmp_path) as setup:
            for name in ("rsa-1", "ec-1"):
                token = issuer.token(name)
                for _ in range(2):
                    assert await asked(setup, token) == (200, "")
            assert await asked(setup, "kc-a") == (200, "")
            assert not any("authorization" in one.headers for one in setup.engines[0].asked)
            assert await asked(setup, issuer.token(tenant="team-b")) == (403, "model_not_allowed")
            assert await asked(setup, issuer.token(tenant=["x", "team-a"])) == (200, "")
            assert issuer.asked == [DISCOVERY, "/keys"]

    run(story())


def test_tokens_that_are_refused_say_why(tmp_path: Path) -> None:
    now = wall_clock()

    async def story() -> None:
        async with issuing() as issuer, trusting(issuer, tmp_path) as setup:
            for token, status, code in (
                (issuer.token(exp=now - 60), 401, "invalid_token"),
                (issuer.token(nbf=now + 600), 401, "invalid_token"),
                (issuer.token(aud="somebody-else"), 401, "invalid_token"),
                (issuer.token(iss="http://127.0.0.1:1"), 401, "invalid_token"),
                (issuer.token(sign_with=rsa_key(2)), 401, "invalid_token"),
                (issuer.token(sign_with=ec_key()), 401, "invalid_token"),
                (jwt.encode({"tenant": "team-a"}, "s" * 64, "HS256", {"kid": "rsa-1"}), 401, "invalid_token"),
                (jwt.encode({"tenant": "team-a"}, "", "none", {"kid": "rsa-1"}), 401, "invalid_token"),
                (issuer.token(tenant="stranger"), 403, "unknown_tenant"),
                (issuer.token(tenant="team-a", sign_with=rsa_key(2)), 401, "invalid_token"),
                ("a.b.c", 401, "invalid_token"),
                ("not-a-token", 401, "invalid_api_key"),
            ):
                assert await asked(setup, token) == (status, code)
            response = await setup.post({"model": "m"}, headers=[("authorization", "Bearer a.b.c")])
            assert response.headers["www-authenticate"].endswith('error="invalid_token"')
            assert not setup.engines[0].asked

    run(story())


def test_a_forger_learns_no_names_of_tenants(tmp_path: Path) -> None:
    async def story() -> None:
        async with issuing() as issuer, trusting(issuer, tmp_path) as setup:
            forged = [issuer.token(tenant=name, sign_with=rsa_key(2)) for name in ("team-a", "no-such-team")]
            responses = [await setup.post({"model": "m"}, headers=[("authorization", f"Bearer {t}")]) for t in forged]
            assert responses[0].status == 401 and responses[0].body == responses[1].body

    run(story())


def test_a_token_that_is_remembered_still_expires(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kilocard.tenancy.claims.LEEWAY", 0.0)

    async def story() -> None:
        async with issuing() as issuer, trusting(issuer, tmp_path) as setup:
            expires = wall_clock() + 1.0
            token = issuer.token(exp=expires)
            statuses = []
            while len(statuses) < 3:
                at = wall_clock()
                status, _ = await asked(setup, token)
                if wall_clock() < expires:
                    assert status == 200
                elif at > expires + 0.25:
                    statuses.append(status)
                await asyncio.sleep(0.02)
            assert set(statuses) == {401}

    run(story())


def test_42_an_outage_of_the_issuer_changes_nothing(tmp_path: Path) -> None:
    async def story() -> None:
        async with issuing() as issuer, trusting(issuer, tmp_path, refresh=0.2) as setup:
            assert await asked(setup, issuer.token()) == (200, "")
            await issuer.stop()

            def old() -> bool:
                age = gauge(setup, "kilocard_key_source_age_seconds")
                return gauge(setup, "kilocard_key_source_up") == 0 and age is not None and age > 0.5

            await until(old)
            for name in ("rsa-1", "ec-1"):
                assert await asked(setup, issuer.token(name)) == (200, "")  # a new token, verified with the old keys
            assert old() and gauge(setup, "kilocard_keys") == 2
            assert await asked(setup, "kc-a") == (200, "")
            # and wrong words of it are no better than none
            for words in (
                Answer(200, "application/json", '{"keys":[]}'),
                Answer(200, "text/html", "<h1>login</h1>"),
                Answer(500, "text/plain", ""),
                Answer(302, "text/plain", ""),
            ):
                issuer.says = lambda path, words=words: words  # type: ignore[misc]  # mypy's view of a default
                asked_before = len(issuer.asked)
                await issuer.start()
                await until(lambda: len(issuer.asked) >= asked_before + 2)  # noqa: B023  # it has read the first of them
                assert await asked(setup, issuer.token(sub=str(words))) == (200, "")
                await issuer.stop()
            issuer.says = lambda path: None
            await issuer.start()
            await until(lambda: gauge(setup, "kilocard_key_source_up") == 1)
            assert await asked(setup, issuer.token()) == (200, "")

    run(story())


def test_42_a_start_without_the_issuer_serves_keys_and_tokens_once_it_is_there(tmp_path: Path) -> None:
    async def story() -> None:
        async with issuing() as issuer:
            await issuer.stop()
            begun = time.monotonic()
            async with trusting(issuer, tmp_path, refresh=0.3) as setup:
                assert time.monotonic() - begun < 8  # it does not wait for the issuer
                assert await asked(setup, "kc-a") == (200, "")
                response = await setup.post({"model": "m"}, headers=[("authorization", f"Bearer {issuer.token()}")])
                assert response.status == 503 and int(response.headers["retry-after"]) >= 1
                assert json.loads(response.body)["error"]["code"] == "issuer_unavailable"
                assert gauge(setup, "kilocard_key_source_up") == 0
                await issuer.start()
                async with within(20):
                    while (await asked(setup, issuer.token()))[0] != 200:
                        await asyncio.sleep(0.05)

    run(story())


def test_a_new_key_of_the_issuer_is_fetched_and_an_unknown_one_asked_for_once_in_ten_seconds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ten_seconds_are(over: bool) -> None:
        monkeypatch.setattr(issuer_shell, "AT_MOST_EACH", 0.0 if over else 1000.0)

    async def story() -> None:
        async with issuing() as issuer, trusting(issuer, tmp_path) as setup:
            ten_seconds_are(over=True)
            issuer.keys["rsa-2"] = rsa_key(2)
            status, code = await asked(setup, issuer.token("rsa-2"))
            assert (status, code) == (503, "issuer_unavailable")  # clients try again on that, after Retry-After
            ten_seconds_are(over=False)
            while (said := await asked(setup, issuer.token("rsa-2"))) == (503, "issuer_unavailable"):
                await asyncio.sleep(0.01)
            assert said == (200, "")
            fetches = issuer.asked.count("/keys")
            assert fetches == 2
            for number in range(100):
                forged = issuer.token(f"random-{number}", sign_with=rsa_key(1))
                assert (await asked(setup, forged))[0] == 401
            assert issuer.asked.count("/keys") == fetches
            # a key that the issuer has withdrawn: its tokens are good no longer, remembered or not
            token = issuer.token("rsa-2")
            assert await asked(setup, token) == (200, "")
            ten_seconds_are(over=True)
            del issuer.keys["rsa-2"]
            await asked(setup, issuer.token("wake", sign_with=rsa_key(1)))
            ten_seconds_are(over=False)
            while (await asked(setup, token))[0] != 401:
                await asyncio.sleep(0.01)

    run(story())


@pytest.mark.parametrize("pause", [60.0, 0.5])
def test_a_key_that_is_new_since_the_last_look_is_waited_for_and_not_refused(
    pause: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The set was read a moment ago (a forger's unknown keys have it read as often as may be), then the issuer changes
    its key: a client whose token is called wrong would not come back with it."""
    monkeypatch.setattr(issuer_shell, "AT_MOST_EACH", pause)

    async def story() -> None:
        async with issuing() as issuer, trusting(issuer, tmp_path) as setup:
            issuer.keys["rsa-2"] = rsa_key(2)
            made = wall_clock()
            assert await asked(setup, issuer.token("rsa-2", iat=made)) == (503, "issuer_unavailable")
            if pause == 60.0:
                old = issuer.token("rsa-0", sign_with=rsa_key(1), iat=made - 3600)
                assert await asked(setup, old) == (401, "invalid_token"), "it would have been in the set"
                return
            while issuer.asked.count("/keys") < 2:  # nobody has to ask once more
                await asyncio.sleep(0.01)
            while (answer := await asked(setup, issuer.token("rsa-2", iat=made))) != (200, ""):
                assert answer == (503, "issuer_unavailable")

    run(story())


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ({"issuer": "http://127.0.0.1:1/other", "jwks_uri": "http://127.0.0.1:1/keys"}, "of the issuer"),
        ({"jwks_uri": "http://127.0.0.1:1/keys"}, "of the issuer"),
        ([], "of the issuer"),
    ],
)
def test_a_discovery_document_of_somebody_else_is_refused(
    document: object, said: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def story() -> None:
        async with issuing() as issuer:
            issuer.says = lambda path: Answer(200, "application/json", json.dumps(document))
            async with trusting(issuer, tmp_path) as setup:
                assert (await asked(setup, issuer.token()))[0] == 503

    run(story())
    assert said in caplog.text


def test_https_with_a_ca_of_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ca = trustme.CA()
    ca.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    ca.issue_cert("localhost").configure_cert(context)

    async def story() -> None:
        issuer = Issuer()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                await reader.readuntil(b"\r\n\r\n")
                body = json.dumps({"keys": [issuer._jwk("rsa-1")]}).encode()
                writer.write(b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: %d\r\n\r\n" % len(body) + body)
                await writer.drain()
            writer.close()

        server = await asyncio.start_server(serve, "localhost", 0, ssl=context)
        port = server.sockets[0].getsockname()[1]
        for trusted, status in ((True, 200), (False, 503)):
            if trusted:
                monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
            else:
                monkeypatch.delenv("SSL_CERT_FILE")
            async with trusting(issuer, tmp_path, jwks=f"https://localhost:{port}/keys") as setup:
                assert (await asked(setup, issuer.token()))[0] == status
        server.close()

    run(story())


def test_a_missing_extra_is_said_at_the_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = tmp_path / "cluster.yaml"
    cluster.write_text(
        "gateway: {listen: '127.0.0.1:0', admin: '127.0.0.1:0', oidc: {issuer: 'http://127.0.0.1:9', audience: [k]}}\n"
        "pools: {m: {engine: external, endpoints: ['http://127.0.0.1:9']}}\ntenants: {t: {}}\n"
    )
    program = "import sys; sys.modules['jwt'] = None; from kilocard.cli.main import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", program, "gateway", str(cluster)], capture_output=True, text=True, timeout=20
    )
    assert done.returncode == 2 and "pip install 'kilocard[oidc]'" in done.stderr and "Traceback" not in done.stderr
    monkeypatch.setattr(jwks.algorithms, "has_crypto", False)
    with pytest.raises(UsageError, match="cryptography"):
        jwks.need_cryptography()


def test_garbage_tokens_cost_little(tmp_path: Path) -> None:
    """No time is asserted: only that no garbage reaches the cryptography."""

    async def story() -> None:
        async with issuing() as issuer, trusting(issuer, tmp_path) as setup:
            assert await asked(setup, issuer.token()) == (200, "")
            good = issuer.token(sub="x").split(".")
            with pytest.MonkeyPatch.context() as patch:

                def never(*_: object) -> None:
                    raise AssertionError("a signature was checked")

                patch.setattr(issuer_shell, "signed_claims", never)
                for garbage in (
                    "a.b.c",
                    "..",
                    f"{good[0]}.x.y",
                    f"{good[0]}.{'A' * 20_000}.{good[2]}",
                    issuer.token(exp=1),
                    issuer.token(iss="x"),
                    issuer.token(aud="x"),
                ):
                    assert (await asked(setup, garbage))[0] == 401

    run(story())
