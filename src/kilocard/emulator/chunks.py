"""Answers in vLLM's shapes. What is the same in all chunks of a stream is put together once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec

FINGERPRINT = "kilocard-emulated"
DONE = b"data: [DONE]\n\n"
_encode = msgspec.json.Encoder().encode


def usage(prompt: int, output: int) -> dict[str, Any]:
    return {
        "prompt_tokens": prompt,
        "total_tokens": prompt + output,
        "completion_tokens": output,
        "prompt_tokens_details": None,
    }


@dataclass(frozen=True, slots=True)
class Answer:
    """What all parts of one answer share. `chat` tells /v1/chat/completions from /v1/completions."""

    chat: bool
    answer_id: str
    created: int
    model: str

    def _fields(self, kind: str) -> dict[str, Any]:
        return {"id": self.answer_id, "object": kind, "created": self.created, "model": self.model}

    def whole(self, text: str, reason: str, prompt: int, output: int) -> bytes:
        choice: dict[str, Any] = {"index": 0, "logprobs": None, "finish_reason": reason, "stop_reason": None}
        if self.chat:
            kind = "chat.completion"
            choice["message"] = {
                "role": "assistant", "content": text, "refusal": None, "annotations": None, "audio": None,
                "function_call": None, "tool_calls": [], "reasoning": None,
            }  # fmt: skip
        else:
            kind = "text_completion"
            choice["text"] = text
        rest = {"choices": [choice], "usage": usage(prompt, output), "system_fingerprint": FINGERPRINT}
        return _encode(self._fields(kind) | rest)

    def before(self) -> bytes:
        """Of a stream's chunk: all up to the text."""
        start = _encode(self._fields("chat.completion.chunk" if self.chat else "text_completion"))[:-1]
        opening = b'"delta":{"content":' if self.chat else b'"text":'
        return b"data: " + start + b',"choices":[{"index":0,' + opening

    def after(self, reason: str | None = None) -> bytes:
        """Of a stream's chunk: all behind the text."""
        closing = b"}" if self.chat else b""
        end = _encode({"logprobs": None, "finish_reason": reason, "stop_reason": None})[1:]
        return closing + b"," + end + b'],"system_fingerprint":"' + FINGERPRINT.encode() + b'"}\n\n'

    def role(self) -> bytes:
        """A chat's first chunk; a completion has none."""
        if not self.chat:
            return b""
        delta = {"role": "assistant", "content": ""}
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": None}
        return b"data: " + _encode(self._fields("chat.completion.chunk") | {"choices": [choice]}) + b"\n\n"

    def usage_chunk(self, prompt: int, output: int) -> bytes:
        fields = self._fields("chat.completion.chunk" if self.chat else "text_completion")
        return b"data: " + _encode(fields | {"choices": [], "usage": usage(prompt, output)}) + b"\n\n"
