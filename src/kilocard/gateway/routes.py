"""The paths that the gateway serves, and how each carries its model name.

A closed table: what is not in it is 404, and only what is in it may become a metrics label.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Route:
    path: str
    #: beginning of the request line to a replica
    request_line: bytes
    #: the body is multipart/form-data rather than JSON
    multipart: bool = False
    #: stream_options.include_usage exists here
    usage_option: bool = False
    #: errors in Anthropic's shape
    anthropic: bool = False
    #: an answer takes as long as it is
    generates: bool = False
    #: the body may hold a list of prompts, each of which is answered
    prompt_list: bool = False
    #: no model runs for it: it costs no tokens
    free: bool = False


def _post(path: str, **more: bool) -> Route:
    return Route(path, b"POST " + path.encode(), **more)


def _table() -> dict[bytes, Route]:
    plain = (
        "/v1/embeddings /v1/rerank /v2/rerank /rerank /v1/score /score /v1/moderations"
        " /pooling /classify /v1/classify /v1/pooling"
    )
    routes = [_post(path) for path in plain.split()]
    routes += [_post(path, free=True) for path in ("/tokenize", "/detokenize", "/v1/tokenize", "/v1/detokenize")]
    routes += [_post(path, generates=True) for path in ("/v1/responses", "/v1/audio/speech", "/v1/images/generations")]
    routes += [_post("/v1/chat/completions", usage_option=True, generates=True)]
    routes += [_post("/v1/completions", usage_option=True, generates=True, prompt_list=True)]
    routes += [_post("/v1/messages", anthropic=True, generates=True)]
    routes += [_post("/v1/messages/count_tokens", anthropic=True, free=True)]
    routes += [
        _post(path, multipart=True, generates=True)
        for path in ("/v1/audio/transcriptions", "/v1/audio/translations", "/v1/images/edits")
    ]
    return {route.path.encode(): route for route in routes}


#: POST routes that go to a replica, by path
INFERENCE = _table()

#: GET paths that the gateway answers itself
MODELS = b"/v1/models"
HEALTH = frozenset({b"/health", b"/healthz", b"/ping"})
READY = b"/readyz"
