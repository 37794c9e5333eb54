"""Errors in the shape of vLLM's OpenAI server, which is not quite OpenAI's."""

from __future__ import annotations

import msgspec

_TYPES = {400: "BadRequestError", 404: "NotFoundError", 500: "InternalServerError", 503: "ServiceUnavailableError"}


class Refused(Exception):
    """The request gets this status and an error body."""

    def __init__(self, status: int, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.param = param

    def body(self) -> bytes:
        kind = _TYPES.get(self.status, "InternalServerError")
        return msgspec.json.encode(
            {"error": {"message": self.message, "type": kind, "param": self.param, "code": self.status}}
        )
