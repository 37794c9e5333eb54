"""What one probe finds. Ready means that the wanted model is served, not only that a health page answers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping

import pytest

from kilocard.backends.life_events import Health
from kilocard.backends.readiness import probe
from kilocard.core.errors import UpstreamError, UpstreamTimeout
from kilocard.engines.model_list import models_listed
from kilocard.net.client import Response

LIST = json.dumps({"object": "list", "data": [{"id": "qwen", "aliases": ["qwen", "q"]}]}).encode()
Page = tuple[int, bytes] | Exception
REFUSED = UpstreamError("http://e: can't connect: refused", code="connect_failed")


def ask(pages: Mapping[str, Page], *wanted: str, path: str = "/health") -> tuple[Health, str]:
    async def get(url: str, limit: float) -> Response:
        page = pages[url.removeprefix("http://e")]
        if isinstance(page, Exception):
            raise page
        return Response(page[0], {}, page[1])

    return asyncio.run(probe(get, "http://e", path, wanted))


@pytest.mark.parametrize(
    ("pages", "health", "words"),
    [
        ({"/health": (200, b""), "/v1/models": (200, LIST)}, Health.READY, ""),
        ({"/health": REFUSED}, Health.NO_ANSWER, "refused"),
        ({"/health": UpstreamError("cut", code="reset")}, Health.NOT_READY, "cut"),
        ({"/health": UpstreamTimeout("late")}, Health.SLOW, "no answer from /health within 5 s"),
        (
            {"/health": (503, b'{"error": {"message": "Loading  model"}}')},
            Health.NOT_READY,
            "/health answers 503: Loading model",
        ),
        ({"/health": (500, b'{"error": "no"}')}, Health.NOT_READY, "/health answers 500: no"),
        ({"/health": (500, b"\xff<html>")}, Health.NOT_READY, "<html>"),
        ({"/health": (500, b"[1]")}, Health.NOT_READY, "500"),
        # answers its health page before it serves: connection refused, or the model is missing from the list
        ({"/health": (200, b""), "/v1/models": REFUSED}, Health.NOT_READY, "refused"),
        (
            {"/health": (200, b""), "/v1/models": (200, b'{"data": [{"id": "base"}]}')},
            Health.NOT_READY,
            "/v1/models lists base, not qwen",
        ),
        ({"/health": (200, b""), "/v1/models": (200, b'{"data": []}')}, Health.NOT_READY, "lists nothing, not qwen"),
        ({"/health": (200, b""), "/v1/models": UpstreamTimeout("late")}, Health.SLOW, "/v1/models"),
        # keeps no list
        ({"/health": (200, b""), "/v1/models": (404, b"")}, Health.READY, ""),
        ({"/health": (200, b""), "/v1/models": (500, b"no hub")}, Health.READY, ""),
        ({"/health": (200, b""), "/v1/models": (200, b"hello")}, Health.READY, ""),
    ],
)
def test_probe(pages: Mapping[str, Page], health: Health, words: str) -> None:
    found, detail = ask(pages, "qwen")
    assert found is health
    assert words in detail


def test_an_alias_is_a_name_and_one_request_is_enough_where_readiness_is_the_list() -> None:
    assert ask({"/v1/models": (200, LIST)}, "q", path="/v1/models") == (Health.READY, "")
    assert ask({"/v1/models": (200, LIST)}, "q", "adapter", path="/v1/models")[0] is Health.NOT_READY


def test_nothing_wanted_needs_no_list() -> None:
    assert ask({"/health": (200, b"")}) == (Health.READY, "")


def test_a_list_of_tags() -> None:
    assert models_listed(b'{"data": [{"id": "llama3:latest"}]}') == {"llama3", "llama3:latest"}
    for odd in (b"", b"[]", b'{"data": 5}', b'{"data": [{}]}', b'{"data": ["x"]}', b'{"data": [{"id":1,"aliases":3}]}'):
        assert models_listed(odd) is None
