"""The Kubernetes API by plain HTTP: where it is, who we are, get one document, watch a stream of them."""

from __future__ import annotations

import json
import ssl as tls
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from kilocard.core.errors import UpstreamError, UsageError
from kilocard.net.client import Client

#: where Kubernetes puts a pod's credentials
MOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
#: bytes of one document or one watch event; a list of 1,000 endpoints takes about 500 KB
LARGEST = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class ApiAccess:
    """`url` is https://host:port (http:// for kubectl proxy). The files are read anew when needed: tokens rotate."""

    url: str
    namespace: str = "default"
    token_file: Path | None = None
    ca_file: Path | None = None


def in_cluster(env: Mapping[str, str], mount: Path = MOUNT) -> ApiAccess:
    """Access as a pod has it by its service account. Raises UsageError outside a cluster."""
    host, port = env.get("KUBERNETES_SERVICE_HOST"), env.get("KUBERNETES_SERVICE_PORT", "443")
    if not host or not (mount / "token").is_file():
        missing = "KUBERNETES_SERVICE_HOST is not set" if not host else f"{mount / 'token'} is missing"
        raise UsageError(f"this is not a pod with a service account ({missing}): give the API server's URL")
    namespace = mount / "namespace"
    return ApiAccess(
        f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}",
        namespace.read_text().strip() if namespace.is_file() else "default",
        mount / "token",
        mount / "ca.crt" if (mount / "ca.crt").is_file() else None,
    )


class ApiServer:
    """Calls that fail raise UpstreamError; `code` is `gone` for 410, `forbidden` for 401 and 403, `not_found` for 404,
    `status` for other statuses, else one of net.client's.
    """

    def __init__(self, access: ApiAccess) -> None:
        self.access = access
        self._client: Client | None = None

    async def get(self, path: str, query: Mapping[str, str], *, seconds: float) -> dict[str, Any]:
        """One JSON document within `seconds`."""
        url = self._url(path, query)
        try:
            response = await self._connected().fetch(url, headers=self._headers(), timeout=seconds, max_bytes=LARGEST)
        except UpstreamError as error:
            await self._after(error)
            raise
        self._check(url, response.status, response.body)
        return _document(url, response.body)

    async def watch(
        self, path: str, query: Mapping[str, str], *, seconds: float, idle: float
    ) -> AsyncGenerator[dict[str, Any], None]:
        """Events of a watch, as they come; ends when the server ends it in good order.

        `seconds` is for the answer's head, `idle` for the wait between two events. Close the
        generator when leaving early.
        """
        url = self._url(path, {**query, "watch": "true"})
        try:
            async with self._connected().stream(url, headers=self._headers(), timeout=seconds, idle=idle) as response:
                if response.status != 200:
                    self._check(url, response.status, await response.read(LARGEST))
                rest = b""
                async for piece in response:
                    *lines, rest = (rest + piece).split(b"\n") if b"\n" in piece else (rest + piece,)
                    for line in lines:
                        if line.strip():
                            yield _document(url, line)
                    if len(rest) > LARGEST:
                        raise UpstreamError(f"{url}: an event is larger than {LARGEST} bytes", code="too_large")
                if rest.strip():
                    raise UpstreamError(f"{url}: the watch ended within an event", code="reset")
        except UpstreamError as error:
            await self._after(error)
            raise

    async def close(self) -> None:
        if self._client is not None:
            await self._client.close()
            self._client = None

    def _connected(self) -> Client:
        if self._client is None:
            context = None
            if self.access.ca_file is not None:
                try:
                    context = tls.create_default_context(cafile=str(self.access.ca_file))
                except OSError as error:  # includes ssl.SSLError
                    raise UpstreamError(f"{self.access.ca_file}: no usable CA: {error}", code="tls_failed") from error
            self._client = Client(ssl=context)
        return self._client

    async def _after(self, error: UpstreamError) -> None:
        if error.code == "tls_failed":
            await self.close()  # the CA may have been renewed: read it again next time

    def _url(self, path: str, query: Mapping[str, str]) -> str:
        return f"{self.access.url.rstrip('/')}{path}?{urlencode(query)}"

    def _headers(self) -> list[tuple[str, str]]:
        headers = [("Accept", "application/json")]
        if self.access.token_file is not None:
            try:
                token = self.access.token_file.read_text().strip()
            except OSError as error:
                raise UpstreamError(
                    f"{self.access.token_file}: no token: {error.strerror}", code="forbidden"
                ) from error
            headers.append(("Authorization", f"Bearer {token}"))
        return headers

    def _check(self, url: str, status: int, body: bytes) -> None:
        if status == 200:
            return
        try:
            message = str(json.loads(body)["message"])
        except (ValueError, TypeError, KeyError):
            message = ascii(body[:200].decode("utf-8", "replace"))
        code = {401: "forbidden", 403: "forbidden", 404: "not_found", 410: "gone"}.get(status, "status")
        raise UpstreamError(f"{url}: answered {status}: {message}", code=code)


def _document(url: str, text: bytes) -> dict[str, Any]:
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UpstreamError(f"{url}: not JSON: {text[:60]!r}", code="protocol") from error
    if not isinstance(document, dict):
        raise UpstreamError(f"{url}: not a JSON object: {text[:60]!r}", code="protocol")
    return document
