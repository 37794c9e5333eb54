"""/v1/chat/completions and /v1/completions."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from kilocard.emulator import asked
from kilocard.emulator.chunks import Answer
from kilocard.emulator.failure import Refused
from kilocard.emulator.faults import Fault, Kind
from kilocard.emulator.sinks import Stream, Whole
from kilocard.emulator.text import FILLER_PIECES, text
from kilocard.net.reply import Reply
from kilocard.wire.http1 import Request

if TYPE_CHECKING:
    from kilocard.emulator.replica import Replica

SSE = [("content-type", "text/event-stream; charset=utf-8")]

#: Answers that nobody limits: about 150 tokens, log-normal like those of real chats.
NATURAL_MEDIAN_LOG = 5.0
NATURAL_SIGMA = 0.6


async def generate(replica: Replica, request: Request, reply: Reply, fault: Fault | None, *, chat: bool) -> None:
    """Answer one generation request. Raises Refused before anything is sent."""
    body: asked.Chat | asked.Completion
    if chat:
        body = asked.read(request.body, asked.Chat)
        prompt = asked.chat_tokens(body)
    else:
        body = asked.read(request.body, asked.Completion)
        prompt = asked.prompt_tokens(body.prompt)
    model = replica.served(body.model)
    context = replica.settings.context
    limit = asked.output_tokens(body, prompt, context, None if chat else asked.COMPLETION_DEFAULT)
    reason = "length"
    if limit is None:
        tokens = context - prompt
        if not body.ignore_eos:
            natural = round(replica.rng.lognormvariate(NATURAL_MEDIAN_LOG, NATURAL_SIGMA))
            if natural < tokens:
                tokens, reason = max(2, natural), "stop"
    else:
        tokens = limit

    request_id = replica.next_id()
    given = request.headers.get("x-request-id") or f"{replica.index}-{request_id}"
    answer = Answer(chat, f"{'chatcmpl' if chat else 'cmpl'}-{given}", int(datetime.now(UTC).timestamp()), model)
    offset = replica.rng.randrange(len(FILLER_PIECES))
    die_after = fault.after_chunks if fault is not None and fault.kind is Kind.DIE_MID_STREAM else None
    stall_after = fault.after_chunks if fault is not None and fault.kind is Kind.STALL_MID_STREAM else None

    sink: Whole
    if body.stream:
        sink = Stream(reply, answer, tokens, reason, offset, die_after=die_after, stall_after=stall_after)
    else:
        sink = Whole(reply, die_after=die_after)
    replica.stepper.add(request_id, prompt, tokens, sink)
    try:
        if isinstance(sink, Stream):
            # Like uvicorn: the head goes out before there is a token.
            reply.start(200, SSE)
            await sink.over
            options = body.stream_options
            await sink.end(prompt, with_usage=bool(options and options.include_usage))
        else:
            await sink.over
            if stall_after is not None:
                await replica.forever()
            words = text(tokens - 1 if reason == "stop" else tokens, offset)
            await reply.send(200, answer.whole(words, reason, prompt, tokens))
    finally:
        # The client has gone, or it is over and this does nothing.
        replica.stepper.abort(request_id)
    observed = replica.observed
    observed.finished[reason] += 1
    observed.prompt_tokens.observe(prompt)
    observed.generation_tokens.observe(tokens)
    observed.max_tokens.observe(tokens)


def refuse_if_hit(fault: Fault | None) -> None:
    """Faults that are an answer."""
    if fault is None:
        return
    if fault.kind is Kind.ERROR:
        raise Refused(fault.status, "a fault made on purpose: error")
    if fault.kind is Kind.LIE_HEALTH:
        raise Refused(500, "a fault made on purpose: EngineCore encountered an issue")
