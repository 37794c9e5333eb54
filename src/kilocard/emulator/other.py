"""Routes beside generation: embeddings, token counts, models."""

from __future__ import annotations

import base64
import hashlib
import math
import struct
from typing import TYPE_CHECKING, Any

import msgspec

from kilocard.emulator import asked
from kilocard.emulator.failure import Refused
from kilocard.emulator.sinks import Whole
from kilocard.net.reply import Reply
from kilocard.wire.http1 import Request

if TYPE_CHECKING:
    from kilocard.emulator.replica import Replica

DIMENSIONS = 64
MAX_DIMENSIONS = 4096
MAX_INPUTS = 2048


def vector(text: bytes, dimensions: int) -> list[float]:
    """The same text gives the same unit vector, on each machine. It means nothing."""
    raw = hashlib.shake_256(text).digest(4 * dimensions)
    numbers = [value / 2**31 - 1.0 for value in struct.unpack(f"<{dimensions}I", raw)]
    length = math.sqrt(sum(number * number for number in numbers)) or 1.0
    return [number / length for number in numbers]


async def embed(replica: Replica, request: Request, reply: Reply) -> bytes:
    body = asked.read(request.body, asked.Embedding)
    model = replica.served(body.model)
    dimensions = DIMENSIONS if body.dimensions is None else body.dimensions
    if not 1 <= dimensions <= MAX_DIMENSIONS:
        raise Refused(400, f"dimensions: from 1 to {MAX_DIMENSIONS}", "dimensions")
    if body.encoding_format not in {"float", "base64"}:
        raise Refused(400, 'encoding_format: "float" or "base64"', "encoding_format")
    inputs: list[Any] = [body.input]
    if isinstance(body.input, list) and not all(isinstance(each, int) for each in body.input):
        inputs = list(body.input)
    if not 1 <= len(inputs) <= MAX_INPUTS:
        raise Refused(400, f"input: from 1 to {MAX_INPUTS} texts", "input")
    counts = [asked.prompt_tokens(each) for each in inputs]
    if max(counts) >= replica.settings.context:
        raise Refused(400, f"This model's maximum context length is {replica.settings.context} tokens.", "input")
    ids = [replica.next_id() for _ in inputs]
    sinks = [Whole(reply) for _ in inputs]
    try:
        for request_id, count, sink in zip(ids, counts, sinks, strict=True):
            replica.stepper.add(request_id, count, 1, sink)
        for sink in sinks:
            await sink.over
    finally:
        for request_id in ids:
            replica.stepper.abort(request_id)
    data: list[dict[str, Any]] = []
    for index, each in enumerate(inputs):
        text = each.encode() if isinstance(each, str) else msgspec.json.encode(each)
        numbers: list[float] | str = vector(text, dimensions)
        if body.encoding_format == "base64":
            numbers = base64.b64encode(struct.pack(f"<{dimensions}f", *numbers)).decode()
        data.append({"index": index, "object": "embedding", "embedding": numbers})
    total = sum(counts)
    usage = {"prompt_tokens": total, "total_tokens": total, "completion_tokens": 0, "prompt_tokens_details": None}
    return msgspec.json.encode({"object": "list", "model": model, "data": data, "usage": usage})


def tokenize(replica: Replica, request: Request) -> bytes:
    """Tokens are 4 bytes of text each, as numbers that detokenize turns back."""
    body = asked.read(request.body, asked.Tokenize)
    replica.served(body.model)
    if body.messages is not None:
        text, _ = asked.chat_text(body.messages)
    elif body.prompt is not None:
        text = body.prompt
    else:
        raise Refused(400, "prompt or messages: one of them is needed", "prompt")
    raw = text.encode("utf-8", "replace")
    size = asked.BYTES_PER_TOKEN
    # A leading 1 keeps zeros and the length of the last piece.
    tokens = [int.from_bytes(b"\x01" + raw[i : i + size]) for i in range(0, len(raw), size)]
    answer = {"count": len(tokens), "max_model_len": replica.settings.context, "tokens": tokens, "token_strs": None}
    return msgspec.json.encode(answer)


def detokenize(replica: Replica, request: Request) -> bytes:
    body = asked.read(request.body, asked.Detokenize)
    replica.served(body.model)
    raw = b""
    for token in body.tokens:
        if not 1 <= token < 2 ** (8 * (asked.BYTES_PER_TOKEN + 1)):
            raise Refused(400, f"tokens: {token} is none of this engine's tokens", "tokens")
        raw += token.to_bytes((token.bit_length() + 7) // 8)[1:]
    return msgspec.json.encode({"prompt": raw.decode("utf-8", "replace")})


def models(replica: Replica) -> bytes:
    data: list[dict[str, Any]] = [
        {
            "id": name,
            "object": "model",
            "created": replica.created,
            "owned_by": "kilocard-emulated",
            "root": name,
            "parent": None,
            "max_model_len": replica.settings.context,
            "permission": [],
        }
        for name in replica.settings.models
    ]
    return msgspec.json.encode({"object": "list", "data": data})
