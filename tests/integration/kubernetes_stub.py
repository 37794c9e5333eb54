"""A small API server with the parts of list and watch that matter: versions, history, 410, bookmarks, tokens, TLS.

Behaviour after the Kubernetes API concepts page ("Efficient detection of changes"): a watch from version V sends
what happened after V; if that history is gone, 410 — as a status line or, for a watch, as an ERROR event.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from typing import Any
from urllib.parse import parse_qs, urlsplit

GONE = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old resource version"}


class KubernetesStub:
    def __init__(self, *, token: str | None = None, namespace: str = "ai", service: str = "vllm") -> None:
        self.token = token
        self.namespace, self.service = namespace, service
        self.version = 100
        self.slices: dict[str, dict[str, Any]] = {}
        self.history: list[tuple[int, dict[str, Any]]] = []
        self.oldest = 100
        self.lists = 0
        self.watches = 0
        self.requests: list[str] = []
        #: answer everything with this status
        self.refuse: int | None = None
        #: accept events and tell nobody: a watch whose connection died in silence
        self.mute = False
        self.break_every_watch = False
        #: tell of an expired version by an ERROR event (real servers do both)
        self.gone_by_event = True
        self._watchers: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None
        self.url = ""

    async def start(self, tls: ssl.SSLContext | None = None, port: int = 0) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", port, ssl=tls)
        self.url = f"{'https' if tls else 'http'}://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def stop(self) -> None:
        assert self._server is not None
        self._server.close()
        self.break_watches()
        await asyncio.sleep(0)

    # --- the cluster's life ---

    def put(self, name: str, at: str = "", **pods: dict[str, Any]) -> None:
        """A slice of these pods. `at`: http://address:port of a single one that is really there."""
        self.version += 1
        kind = "MODIFIED" if name in self.slices else "ADDED"
        place = urlsplit(at)
        self.slices[name] = {
            "metadata": {"name": name, "resourceVersion": str(self.version)},
            "addressType": "IPv4",
            "ports": [{"name": "http", "port": place.port or 8000, "protocol": "TCP"}],
            "endpoints": [
                {
                    "addresses": [place.hostname or f"10.0.0.{pod[1:]}"],
                    "targetRef": {"kind": "Pod", "name": pod},
                    "conditions": state,
                }
                for pod, state in pods.items()
            ],
        }
        self._happened(kind, self.slices[name])

    def delete(self, name: str) -> None:
        self.version += 1
        gone = self.slices.pop(name)
        gone["metadata"]["resourceVersion"] = str(self.version)
        self._happened("DELETED", gone)

    def bookmark(self) -> None:
        self.version += 1  # as if other objects had changed
        self._tell({"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": str(self.version)}}})

    def forget_history(self) -> None:
        self.history.clear()
        self.version += 1
        self.oldest = self.version

    def break_watches(self) -> None:
        for writer in list(self._watchers):
            writer.transport.abort()

    def end_watches(self) -> None:
        for writer in list(self._watchers):
            writer.write(b"0\r\n\r\n")
            self._watchers.discard(writer)

    def say(self, line: bytes) -> None:
        for writer in self._watchers:
            writer.write(b"%x\r\n%s\r\n" % (len(line), line))

    @property
    def watched(self) -> bool:
        return bool(self._watchers)

    def _happened(self, kind: str, thing: dict[str, Any]) -> None:
        event = json.loads(json.dumps({"type": kind, "object": thing}))
        self.history.append((self.version, event))
        self._tell(event)

    def _tell(self, event: dict[str, Any]) -> None:
        if not self.mute:
            self.say(json.dumps(event).encode() + b"\n")

    # --- HTTP ---

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                self._answer(head, writer)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self._watchers.discard(writer)
            writer.close()

    def _answer(self, head: str, writer: asyncio.StreamWriter) -> None:
        target = urlsplit(head.split()[1])
        query = {key: values[0] for key, values in parse_qs(target.query).items()}
        self.requests.append(head)
        if self.refuse is not None:
            self._send(writer, self.refuse, {"kind": "Status", "code": self.refuse, "message": "not today"})
        elif self.token is not None and f"authorization: bearer {self.token}\r\n" not in head.lower():
            self._send(writer, 401, {"kind": "Status", "code": 401, "message": "Unauthorized"})
        elif target.path != f"/apis/discovery.k8s.io/v1/namespaces/{self.namespace}/endpointslices":
            self._send(writer, 404, {"kind": "Status", "code": 404, "message": "no such path"})
        elif query.get("labelSelector") != f"kubernetes.io/service-name={self.service}":
            self._send(writer, 200, {"metadata": {"resourceVersion": str(self.version)}, "items": []})
        elif "watch" in query:
            self._watch(writer, query)
        else:
            self.lists += 1
            items = list(self.slices.values())
            self._send(writer, 200, {"metadata": {"resourceVersion": str(self.version)}, "items": items})

    def _watch(self, writer: asyncio.StreamWriter, query: dict[str, str]) -> None:
        self.watches += 1
        since = int(query["resourceVersion"])
        if self.break_every_watch:
            writer.transport.abort()
            return
        if since < self.oldest and not self.gone_by_event:
            self._send(writer, 410, GONE)
            return
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        self._watchers.add(writer)
        if since < self.oldest:
            self.say(json.dumps({"type": "ERROR", "object": GONE}).encode() + b"\n")
            return
        for version, event in self.history:
            if version > since:
                line = json.dumps(event).encode() + b"\n"
                writer.write(b"%x\r\n%s\r\n" % (len(line), line))

    def _send(self, writer: asyncio.StreamWriter, status: int, document: dict[str, Any]) -> None:
        body = json.dumps(document).encode()
        writer.write(f"HTTP/1.1 {status} X\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
