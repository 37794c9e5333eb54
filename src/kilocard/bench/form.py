"""The body of a request: which fields it has, and what a server was found not to take."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

#: fields that differ from request to request: its text, and how long its answer is
_OF_ONE_REQUEST = {"messages", "prompt", "max_tokens", "max_completion_tokens", "min_tokens"}

#: stands for the prompt in a body that is filled in later; JSON keeps it as it is
_HERE = "<prompt>"


@dataclass(frozen=True)
class Form:
    """How a body is written for one server. What the probe saw refused is off here, and said in the report."""

    model: str
    chat: bool = True
    #: "max_tokens", or "max_completion_tokens" where that is refused
    limit: str = "max_tokens"
    #: stream_options.include_usage: without it most servers count nothing in a stream
    usage: bool = True
    #: go on to the asked length whatever the model wants to say
    ignore_eos: bool = True
    #: the same by another name, for servers that ignore ignore_eos
    min_tokens: bool = False
    #: 0 is the cheapest sampling, and the same work in every run; None: the server's default
    temperature: float | None = 0.0
    #: the user's own fields; they win over ours
    extra: Mapping[str, Any] = field(default_factory=dict)

    def body(self, text: str, output_tokens: int, *, stream: bool = True) -> bytes:
        said: dict[str, Any] = {"model": self.model}
        if self.chat:
            said["messages"] = [{"role": "user", "content": text}]
        else:
            said["prompt"] = text
        said[self.limit] = output_tokens
        if self.ignore_eos:
            said["ignore_eos"] = True
        if self.min_tokens:
            said["min_tokens"] = output_tokens
        if self.temperature is not None:
            said["temperature"] = self.temperature
        if stream:
            said["stream"] = True
            if self.usage:
                said["stream_options"] = {"include_usage": True}
        return json.dumps({**said, **self.extra}, separators=(",", ":")).encode()

    def fields(self) -> dict[str, Any]:
        """What each streamed request asks for, beside its text and length. A server's speed depends on it."""
        body: dict[str, Any] = json.loads(self.body("", 1))
        return {name: value for name, value in body.items() if name not in _OF_ONE_REQUEST}

    def around(self, output_tokens: int) -> tuple[bytes, bytes]:
        """What stands before and behind the prompt in a body, for prompts that need no escaping in JSON."""
        before, _, behind = self.body(_HERE, output_tokens).partition(_HERE.encode())
        return before, behind

    def without(self, name: str) -> Form:
        """Without an optional field, by its name in the body. Raises KeyError for one that is not ours to drop."""
        if name == self.limit:
            return replace(self, limit="max_tokens" if name == "max_completion_tokens" else "max_completion_tokens")
        change: Mapping[str, Mapping[str, Any]] = {
            "ignore_eos": {"ignore_eos": False},
            "min_tokens": {"min_tokens": False},
            "temperature": {"temperature": None},
            "stream_options": {"usage": False},
        }
        return replace(self, **change[name])

    def optional(self) -> tuple[str, ...]:
        """Names of the fields that could be dropped, the least missed first."""
        names = (
            ("min_tokens", self.min_tokens),
            ("ignore_eos", self.ignore_eos),
            ("temperature", self.temperature is not None),
            ("stream_options", self.usage),
        )
        return tuple(name for name, is_on in names if is_on)
