"""Short questions to the server before and after a run, each with a time limit; failures in plain words."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from kilocard.bench.ask import Target
from kilocard.core.errors import Forbidden, KilocardError, Unauthorized, UpstreamError, UpstreamTimeout
from kilocard.net.client import Client, Response
from kilocard.wire import events
from kilocard.wire.events import Usage

#: seconds for a page that needs no model
PAGE_SECONDS = 10.0
#: the server began an answer (200), and what came is an error or no answer
BROKEN = 0
#: how much of a server's own message is repeated
_SHOWN = 300


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to a generation request. `message`: the server's own words where it refused. `status`: of HTTP, or
    BROKEN."""

    status: int
    message: str = ""
    usage: Usage | None = None
    finish_reason: str | None = None


class Inquiry:
    """Asks one server. Use it as a context manager: it keeps connections between questions."""

    def __init__(self, target: Target, *, seconds: float = 120.0) -> None:
        self.target = target
        #: for an answer that needs the model, which some servers only then load
        self.seconds = seconds
        self._client = Client(ssl=target.tls)
        self._secrets = _secrets(target.headers)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        await self._client.close()

    async def get(self, path: str) -> Response:
        """A page of the server. Raises UpstreamError in words that say what to do; any status is an answer."""
        return await self._fetch(self.target.url + path, "GET", b"", PAGE_SECONDS)

    async def page(self, url: str) -> Response | None:
        """A page by its whole URL; None where there is none. The key goes only to the server that it is for."""
        headers = self.target.headers if url.startswith(self.target.url + "/") else ()
        try:
            answer = await self._client.fetch(url, headers=headers, timeout=PAGE_SECONDS)
        except UpstreamError:
            return None
        return answer if answer.status == 200 else None

    async def post(self, path: str, body: bytes, seconds: float | None = None) -> Response:
        return await self._fetch(self.target.url + path, "POST", body, seconds or self.seconds)

    async def generate(self, path: str, body: bytes) -> Answer:
        """Send a generation request, streamed or not, and read all of the answer."""
        response = await self.post(path, body)
        if response.status != 200:
            return Answer(response.status, self.message(response))
        if "event-stream" not in response.headers.get("content-type", ""):
            return _answer([response.body])
        return _answer(piece for event in _split(response.body) if (piece := events.payload(event)))

    def message(self, response: Response) -> str:
        """What the server says about an error, without the key and without the end if it is long."""
        text = _message(response.body)
        for secret in self._secrets:
            text = text.replace(secret, "***")
        text = " ".join(text.split())
        return text[:_SHOWN] + ("…" if len(text) > _SHOWN else "")

    def refusal(self, status: int, message: str, path: str) -> KilocardError:
        """The error to raise for an answer that ends the inquiry."""
        where = self.target.url + path
        said = f": {message}" if message else ""
        if status == BROKEN:
            return UpstreamError(f"{where} began to answer (200) and then sent{said or ' nothing of use'}")
        if status == 401:
            has_key = any(name.lower() == "authorization" for name, _ in self.target.headers)
            what = "does not accept this API key" if has_key else "wants an API key"
            return Unauthorized(
                f"{where} {what} (401{said}). Set KILOCARD_API_KEY or OPENAI_API_KEY",
                code="invalid_api_key" if has_key else "missing_api_key",
            )
        if status == 403:
            return Forbidden(f"{where} does not let this API key in (403{said}): use a key that may use the model")
        if status == 404:
            return UpstreamError(f"{where} is not there (404{said}). Check the URL and --model")
        if status == 429:
            return UpstreamError(f"{where} limits this API key (429{said}). Use a key without limits for a load test")
        if status == 503:
            return UpstreamError(f"{where} can't serve now (503{said}). Wait until the model is loaded")
        return UpstreamError(f"{where} answered {status}{said}")

    async def _fetch(self, url: str, method: str, body: bytes, seconds: float) -> Response:
        headers = list(self.target.headers)
        if body:
            headers.append(("content-type", "application/json"))
        for is_last in (False, True):
            try:
                return await self._client.fetch(url, method=method, headers=headers, body=body, timeout=seconds)
            except UpstreamError as error:
                # llama.cpp ends a connection behind each stream, unannounced. A question may be asked twice.
                if is_last or error.code != "reset":
                    raise _plain(error, url, seconds) from error
        raise AssertionError("unreachable")


def _plain(error: UpstreamError, url: str, seconds: float) -> UpstreamError:
    """The same error in words for somebody who typed a URL."""
    cause = str(error).removeprefix(f"{url}: ")
    if isinstance(error, UpstreamTimeout):
        return UpstreamTimeout(
            f"{url} gave no whole answer within {seconds:g} s. Is the server overloaded, or still loading the model?"
        )
    if error.code == "connect_failed":
        advice = "Is the server running, and are host and port right?"
    elif error.code == "tls_failed":
        advice = "Is it https at all (try http://), and is its certificate known here?"
    elif error.code in {"reset", "protocol"}:
        advice = "Is it an HTTP server (for TLS write https://)?"
    else:
        advice = "Is this the server that you mean?"
    return UpstreamError(f"{url}: {cause}. {advice}", code=error.code)


def _secrets(headers: Iterable[tuple[str, str]]) -> list[str]:
    """Header values that no message may repeat, the longest first."""
    found = {part for _, value in headers for part in (value, value.rpartition(" ")[2]) if len(part) >= 8}
    return sorted(found, key=len, reverse=True)


def _split(body: bytes) -> list[bytes]:
    """The events of a whole SSE body."""
    return [event + b"\n\n" for event in body.replace(b"\r\n", b"\n").split(b"\n\n") if event.strip()]


def _answer(pieces: Iterable[bytes]) -> Answer:
    usage: Usage | None = None
    finish = None
    for piece in pieces:
        if piece == b"[DONE]":
            break
        try:
            said = json.loads(piece)
        except ValueError:
            return Answer(BROKEN, f"not JSON: {piece[:60]!r}")
        if not isinstance(said, dict):
            return Answer(BROKEN, f"not an answer: {piece[:60]!r}")
        if said.get("error"):
            return Answer(BROKEN, _message(piece))
        newer = events.body_usage(piece)
        if newer is not None:
            usage = newer if usage is None else usage.merged(newer)
        for choice in said.get("choices") or ():
            finish = (isinstance(choice, dict) and choice.get("finish_reason")) or finish
    return Answer(200, "", usage, finish if isinstance(finish, str) else None)


def _message(body: bytes) -> str:
    """OpenAI's shape, FastAPI's, vLLM's older one; else the text itself."""
    try:
        said: Any = json.loads(body)
    except ValueError:
        return body[: 2 * _SHOWN].decode("utf-8", "replace")
    for key in ("error", "detail", "message"):
        if isinstance(said, dict) and said.get(key):
            said = said[key]
    return said if isinstance(said, str) else json.dumps(said)
