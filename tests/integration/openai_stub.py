"""A small OpenAI-compatible server that behaves as badly as it is told to."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from kilocard.net.reply import JSON, Answer, Reply
from kilocard.net.server import Server
from kilocard.wire.http1 import Request

#: tokens that the chat template adds
TEMPLATE = 23


@dataclass
class Stub:
    models: tuple[str, ...] = ("m",)
    #: fields that it answers with 400, and how it words it
    refused: tuple[str, ...] = ()
    says_which: bool = True
    #: tokens after which the model stops by itself
    natural: int = 3
    #: and where it talks on without end
    talks_on: str = ""
    takes_ignore_eos: bool = True
    takes_min_tokens: bool = False
    counts: bool = True
    key: str | None = None
    chat: bool = True
    #: status of /v1/models
    list_status: int = 200
    #: words that are several tokens here
    long_words: frozenset[str] = frozenset()
    metrics: bytes | None = None
    metrics_query: str = ""
    #: all that was asked for, in order
    targets: list[str] = field(default_factory=list)
    #: bodies of generation requests
    asked: list[dict[str, Any]] = field(default_factory=list)
    #: authorization headers that came
    keys: set[str] = field(default_factory=set)

    def tokens(self, text: str) -> int:
        return sum(3 if word in self.long_words else 1 for word in text.split())

    async def handle(self, request: Request, reply: Reply) -> Answer:
        self.targets.append(request.target)
        given = request.headers.get("authorization", "")
        self.keys.add(given)
        if self.key is not None and given != f"Bearer {self.key}":
            return _error(401, f"Incorrect API key provided: {given}")
        if request.path == "/v1/models":
            data = [{"id": name, "object": "model", "owned_by": "stub"} for name in self.models]
            return Answer(self.list_status, JSON, json.dumps({"object": "list", "data": data}).encode())
        if request.path == "/metrics" and request.query != self.metrics_query:
            return _error(400, "model name is missing from the request")
        if request.path == "/metrics" and self.metrics is not None:
            return Answer(200, "text/plain", self.metrics)
        chat = request.path == "/v1/chat/completions"
        if (chat and not self.chat) or request.path not in {"/v1/chat/completions", "/v1/completions"}:
            return Answer(404, JSON, b'{"detail":"Not Found"}')
        return self._generate(json.loads(request.body), chat)

    def _generate(self, said: dict[str, Any], chat: bool) -> Answer:
        self.asked.append(said)
        for name in self.refused:
            if name in said:
                return _error(400, f"Unsupported parameter: '{name}'." if self.says_which else "Bad request.")
        most = said.get("max_tokens") or said.get("max_completion_tokens") or 16
        goes_on = (self.takes_ignore_eos and said.get("ignore_eos")) or (
            self.takes_min_tokens and said.get("min_tokens", 0) >= most
        )
        text = said["messages"][0]["content"] if chat else said["prompt"]
        made = most if goes_on or text == self.talks_on else min(most, self.natural)
        finish = "length" if made == most else "stop"
        prompt = self.tokens(text) + (TEMPLATE if chat else 0)
        usage = {"prompt_tokens": prompt, "completion_tokens": made, "total_tokens": prompt + made}
        if not said.get("stream"):
            choice = {"index": 0, "text": "a" * made, "finish_reason": finish}
            return Answer(200, JSON, json.dumps({"choices": [choice], "usage": usage}).encode())
        events: list[dict[str, Any]] = [{"choices": [{"index": 0, "delta": {"content": "a"}}]} for _ in range(made)]
        events.append({"choices": [{"index": 0, "delta": {}, "finish_reason": finish}]})
        if self.counts and said.get("stream_options", {}).get("include_usage"):
            events.append({"choices": [], "usage": usage})
        body = b"".join(b"data: %b\n\n" % json.dumps(event).encode() for event in events) + b"data: [DONE]\n\n"
        return Answer(200, "text/event-stream; charset=utf-8", body)


def _error(status: int, message: str) -> Answer:
    return Answer(status, JSON, json.dumps({"error": {"message": message, "type": "invalid_request_error"}}).encode())


@asynccontextmanager
async def served(stub: Stub) -> AsyncIterator[str]:
    """The stub's URL."""
    server = Server(stub.handle)
    port = await server.start("127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        await server.close(0.0)
