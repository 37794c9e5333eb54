"""The route receipt: which replica, why, and what was believed of it and of the others, as one header line.

Asked for with `x-kilocard-receipt: 1`. Compact ASCII JSON, bounded; no address of a replica is in it.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from kilocard.dispatch.explain import Candidate
from kilocard.spec.vocabulary import READS_PROMPTS

if TYPE_CHECKING:
    from kilocard.gateway.exchange import Exchange
    from kilocard.gateway.replica_names import ReplicaNames
    from kilocard.gateway.trail import Trail

HEADER = b"x-kilocard-receipt: "
#: bytes of the JSON: many proxies take heads of 4 KiB or 8 KiB in all
MOST_BYTES = 2048
#: characters of a model's name where there is no room for all
SHORT_NAME = 40


def receipt(exchange: Exchange, trail: Trail, now: float) -> bytes:
    """The header line, with its end."""
    names = exchange.plane.names
    attempts = trail.attempts
    said: dict[str, Any] = {"model": exchange.inbound.model}
    others: list[Candidate] = []
    if attempts:
        send, why = attempts[-1].send, trail.why
        said |= {"pool": send.pool, "replica": names.of(send.replica)}
        if why is not None:
            said["policy"] = why.policy
            said["chosen"] = None if why.chosen is None else _load(why.chosen, names)
            others = why.others
        said |= {"reason": send.decision.reason, "score": round(send.decision.score, 3)}
        # the log may want to know of prompts where the policy does not
        if exchange.inbound.prefix is not None and (why is None or why.policy in READS_PROMPTS):
            said |= {"prompt_tokens": exchange.inbound.prompt_tokens, "expected_cached_tokens": send.decision.cached}
    said["attempts"] = [
        {"replica": names.of(attempt.send.replica)} | ({"fault": attempt.fault} if attempt.fault else {})
        for attempt in attempts
    ]
    said["held_s"] = round(trail.waited(now), 4)
    if trail.holds:
        said["held"] = trail.holds[-1][1]
    if (hedge := trail.hedge) is not None:
        won = any(attempt.send is hedge for attempt in attempts)
        said["hedge"] = {"replica": names.of(hedge.replica), "won": won}
    if trail.code:
        said["refused"] = trail.code
    if trail.trace is not None:
        said["trace_id"] = f"{trail.trace.span.trace_id:032x}"
    return HEADER + _bounded(said, [_load(other, names) for other in others]) + b"\r\n"


def _load(candidate: Candidate, names: ReplicaNames) -> dict[str, Any]:
    """Without what is unknown."""
    said = candidate._asdict() | {"replica": names.of(candidate.replica)}
    return {key: value for key, value in said.items() if value is not None}


def _bounded(said: dict[str, Any], others: list[dict[str, Any]]) -> bytes:
    """As many of the others as there is room for; then the last attempts, then a part of a long name."""
    while True:
        text = json.dumps(said | {"alternatives": others}, separators=(",", ":")).encode()
        if len(text) <= MOST_BYTES:
            return text
        if others:
            others = others[:-1]
        elif len(said["attempts"]) > 1:
            said = said | {"attempts": said["attempts"][1:]}
        elif len(said["model"]) > SHORT_NAME:
            said = said | {"model": said["model"][:SHORT_NAME]}
        else:
            return text
