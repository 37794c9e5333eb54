"""What the gateway answers itself on the data listener: the model list, health, and what is not there."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import unquote_to_bytes

import msgspec

from kilocard.core.errors import KilocardError, MethodNotAllowed, NotFound
from kilocard.gateway.client_writer import error_block
from kilocard.gateway.heads import status_line
from kilocard.gateway.local_answer import LocalAnswer, answered, turned_away
from kilocard.gateway.routes import HEALTH, INFERENCE, MODELS, READY
from kilocard.tenancy.access import ANYBODY
from kilocard.wire.failure import error_body

if TYPE_CHECKING:
    from kilocard.gateway.arrival import Arrival
    from kilocard.gateway.downstream import ClientConnection
    from kilocard.gateway.plane import Plane
    from kilocard.tenancy.access import Tenant

_JSON = b"content-type: application/json\r\n"
#: what balancers ask every second
PROBES = HEALTH | {READY}
_READS = (b"GET", b"HEAD")
_encode = msgspec.json.Encoder().encode


def answer_locally(plane: Plane, client: ClientConnection, arrival: Arrival) -> None:
    """Everything but inference requests."""
    tenant = ANYBODY
    try:
        if _is_list(arrival):
            tenant = plane.access.who(arrival.head.authorization, arrival.head.api_key)
        status, body = _page(plane, arrival, tenant)
    except KilocardError as error:
        block = error_block(error, b"allow: POST\r\n" if error.http_status == 405 else b"")
        _write(client, arrival, block, error_body(error))
        turned_away(plane, client, error, arrival, tenant=tenant.name)
    else:
        _write(client, arrival, status_line(status) + _JSON, body)
        if plane.on_answer and arrival.path not in PROBES:  # probes would be most of a log
            answered(plane, LocalAnswer(client, arrival, status, tenant=tenant.name))
    client.next_request(plane.clock())


def _write(client: ClientConnection, arrival: Arrival, block: bytes, body: bytes) -> None:
    if arrival.method == b"HEAD":  # a body would be read as the next answer's head; its length is said all the same
        client.write_head(block, b"content-length: %d\r\n" % len(body))
    else:
        client.write_whole(block, body)


def _is_list(arrival: Arrival) -> bool:
    """The only page that asks for a key."""
    path = arrival.path
    return arrival.method in _READS and (path == MODELS or path.startswith(MODELS + b"/"))


def _page(plane: Plane, arrival: Arrival, tenant: Tenant) -> tuple[int, bytes]:
    path = arrival.path
    if path in INFERENCE:
        raise MethodNotAllowed(f"{path.decode()} takes POST.")
    if _is_list(arrival):
        # Clients write a name with slashes, or beyond ASCII, in percents.
        return 200, _models(plane, tenant, unquote_to_bytes(path[len(MODELS) + 1 :]).decode("utf-8", "replace"))
    if arrival.method in _READS:
        if path in HEALTH:
            return 200, b'{"status":"ok"}'
        if path == READY:
            return (200, b'{"ready":true}') if plane.ready else (503, b'{"ready":false}')
    raise NotFound("There is nothing at this path. Inference routes start with /v1/.", code="unknown_path")


def _models(plane: Plane, tenant: Tenant, name: str) -> bytes:
    """The list, or one model; a tenant sees only what it may use."""
    may_use = plane.dispatcher.may_use
    visible = [model for model in plane.spec.models if tenant.may_use(model) and may_use(model, tenant.name)]
    if not name:
        return _encode({"object": "list", "data": [_model(model) for model in visible]})
    if name not in visible:
        raise NotFound(f"There is no model {name!r} here.", code="model_not_found", param="model")
    return _encode(_model(name))


def _model(name: str) -> dict[str, object]:
    return {"id": name, "object": "model", "created": 0, "owned_by": "kilocard"}
