"""Makes a record of each request that has ended and hands it to whoever writes it down."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kilocard.gateway.local_answer import LocalAnswer
from kilocard.gateway.writers import Writer, WriterMeters
from kilocard.tenancy.usage import NOTHING, Record

if TYPE_CHECKING:
    from kilocard.gateway.exchange import Exchange
    from kilocard.gateway.plane import Plane

#: characters of a model's name that a client made up, and of a path
LONGEST: Final = 256


class Recorder:
    """`log` gets all requests. `ledger` gets those that a replica was wanted for: what a tenant's own fault or limit
    kept out has used nothing, and would let one client write as many rows as it can send requests."""

    def __init__(self, plane: Plane, *, ledger: Writer | None = None, log: Writer | None = None) -> None:
        self._plane = plane
        writers = [writer for writer in (ledger, log) if writer is not None]
        self._all = [writer.add for writer in writers]
        self._kept_out = [] if log is None else [log.add]
        plane.on_end.append(self.ended)
        if log is not None:
            self._log = log.add
            plane.on_answer.append(self.answered)
            plane.notes_peers = True
        WriterMeters(writers, plane.telemetry.registry)

    def ended(self, exchange: Exchange, outcome: str, now: float) -> None:
        """On the path of every request: one tuple."""
        client = exchange.client
        inbound = exchange.inbound
        send = exchange.send
        model = inbound.model
        if len(model) > LONGEST:
            model = model[:LONGEST]
        adds = self._all
        if send is None:
            attempts, replica, pool = 0, "", ""
            held = now - exchange.arrived
            if 0 < exchange.status < 500:
                adds = self._kept_out
        else:
            attempts, replica, pool = send.attempt, send.replica, send.pool
            held = exchange.held_seconds
        record: Record = tuple.__new__(
            Record,
            (
                exchange.arrived, now, exchange.request_id, client.request_id, client.peer, inbound.tenant.name, model,
                exchange.meters.name, inbound.route.path, inbound.stream, len(inbound.body), pool, replica, attempts,
                outcome, exchange.status, exchange.code, exchange.used, held, exchange.content_at,
            ),
        )  # fmt: skip
        for add in adds:
            add(record)

    def answered(self, answer: LocalAnswer, now: float) -> None:
        client, arrival, status, outcome, code, inbound, tenant = answer
        self._log(
            Record(
                started=now,
                ended=now,
                request_id=client.request_id,
                client_id=client.request_id,
                peer=client.peer,
                tenant=tenant,
                asked_model="" if inbound is None else inbound.model[:LONGEST],
                model="",
                path="" if arrival is None else arrival.path[:LONGEST].decode("utf-8", "replace"),
                streamed=False,
                bytes_in=0 if arrival is None else len(arrival.body),
                pool="",
                replica="",
                attempts=0,
                outcome=outcome,
                status=status,
                code=code,
                tokens=NOTHING,
                held=0.0,
                first_at=0.0,
            )
        )
