"""What a request is charged: the one answer for metrics, limits, ledger and log."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kilocard.tenancy.usage import NOTHING, Tokens

if TYPE_CHECKING:
    from kilocard.gateway.exchange import Exchange


def used(exchange: Exchange, outcome: str) -> Tokens:
    """The tokens of an exchange that has ended so.

    The engine's own count where its answer was whole. A stream that ended early, because its client left or its replica
    broke, is charged the prompt as estimated and one token for each event, or what the engine had said by then if
    that is more. Who leaves before the answer begins is charged the prompt, once a replica has got it, and so is an
    answer in one piece whose engine did not count. A failure that showed the client nothing costs nothing, nor does a
    refusal, which may be an event.
    """
    relay = exchange.relay
    if relay is None:
        usage = exchange.usage
        if usage is None:
            if (outcome == "client_gone" and exchange.sent_at) or outcome == "ok":
                guess = exchange.inbound.uncounted_prompt
                return Tokens(guess, 0, 0, True) if guess else NOTHING
            return NOTHING
        return tuple.__new__(Tokens, (usage.prompt or 0, usage.output or 0, usage.cached or 0, False))
    if relay.refused:
        return NOTHING
    whole = outcome == "ok"
    if not (whole or relay.content or outcome == "client_gone"):
        return NOTHING
    events = relay.events + exchange.events
    prompt, output, cached = relay.usage or (None, None, None)
    estimated = not whole or prompt is None or output is None
    if prompt is None:
        prompt = exchange.inbound.uncounted_prompt
    if output is None or not whole:
        output = max(events, output or 0)
    return Tokens(prompt, output, cached or 0, estimated)
