"""What a server takes: which endpoints, which fields of the body, and whether it goes on to the asked length."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Literal

from kilocard.bench.form import Form
from kilocard.bench.inquiry import Answer, Inquiry
from kilocard.bench.server import IgnoreEos
from kilocard.core.errors import KilocardError, UpstreamError

Endpoint = Literal["chat", "completions"]

PATHS: Mapping[Endpoint, str] = {"chat": "/v1/chat/completions", "completions": "/v1/completions"}

#: questions that most models answer in far fewer tokens than they may
TRIALS = ("What is the capital of France?", "Say OK, and nothing else.")
TRIAL = TRIALS[0]
TRIAL_TOKENS = 24


async def endpoints(
    inquiry: Inquiry, form: Form, wanted: Iterable[Endpoint], notes: list[str]
) -> dict[Endpoint, tuple[Form, Answer]]:
    """Endpoints that answer, with the form that each takes. Raises the first one's error if none does."""
    found: dict[Endpoint, tuple[Form, Answer]] = {}
    first: KilocardError | None = None
    for endpoint in wanted:
        own: list[str] = []
        try:
            own_form = replace(form, chat=endpoint == "chat")
            # Of a second endpoint only whether it answers is asked.
            tokens = 1 if found else TRIAL_TOKENS
            found[endpoint] = await _accepted(inquiry, PATHS[endpoint], own_form, tokens, own)
        except KilocardError as error:
            first = first or error
            if not _is_of_this_endpoint(error):
                raise
        else:
            if len(found) == 1:
                notes += own
                if first is not None:
                    notes.append(f"{PATHS[endpoint]} is used, since {first}")
    if not found:
        assert first is not None
        raise first
    return found


def _is_of_this_endpoint(error: KilocardError) -> bool:
    """Another endpoint of the same server may still answer. A key, a limit or a dead server is the same for all."""
    return isinstance(error, UpstreamError) and error.code == UpstreamError.default_code


async def _accepted(inquiry: Inquiry, path: str, form: Form, tokens: int, notes: list[str]) -> tuple[Form, Answer]:
    """Send the form; drop optional fields that the server refuses, and say so."""
    tried_bare = False
    while True:
        answer = await inquiry.generate(path, form.body(TRIAL, tokens))
        if answer.status == 200:
            return form, answer
        if answer.status not in {400, 422}:
            raise inquiry.refusal(answer.status, answer.message, path)
        name = _blamed(answer.message, form)
        if name is None:
            if not form.optional():
                raise inquiry.refusal(answer.status, answer.message, path)
            if not tried_bare:
                # Is it our fields at all? A model without a chat template, say, refuses every chat.
                tried_bare = True
                bare = form
                for optional in form.optional():
                    bare = bare.without(optional)
                plain = await inquiry.generate(path, bare.body(TRIAL, 1))
                if plain.status != 200:
                    raise inquiry.refusal(plain.status, plain.message, path)
            name = form.optional()[0]
        notes.append(f"the server refuses {name!r} ({answer.status}: {answer.message}): it is not sent")
        form = form.without(name)


def _blamed(message: str, form: Form) -> str | None:
    """The field that an error message names first, of those that can be left out."""
    names = list(form.optional())
    if form.limit == "max_tokens":
        names.append("max_tokens")
    places = [(message.find(name), name) for name in names if name in message]
    return min(places)[1] if places else None


async def try_ignore_eos(
    inquiry: Inquiry, path: str, form: Form, wanted: Form, answer: Answer, notes: list[str]
) -> tuple[IgnoreEos, Form]:
    """Does an answer go on to the asked length? `answer` is that to TRIAL, in `form`."""
    if not wanted.ignore_eos:
        return IgnoreEos.UNSEEN, form
    question = await _stopping(inquiry, path, form, answer)
    found = IgnoreEos.REFUSED
    if form.ignore_eos:
        if question is None:
            return IgnoreEos.UNSEEN, form
        ours = answer if question == TRIAL else await inquiry.generate(path, form.body(question, TRIAL_TOKENS))
        if ours.finish_reason == "length":
            return IgnoreEos.WORKS, form
        found = IgnoreEos.IGNORED
    if question is not None:
        other = replace(form, min_tokens=True)
        second = await inquiry.generate(path, other.body(question, TRIAL_TOKENS))
        if second.status == 200 and second.finish_reason == "length":
            notes.append(f"ignore_eos is {found.value}: min_tokens is sent, and answers have the asked length")
            return IgnoreEos.MIN_TOKENS, other
    notes.append(f"ignore_eos is {found.value}: answers end where the model wants, and have the length that they have")
    return found, form


async def _stopping(inquiry: Inquiry, path: str, form: Form, answer: Answer) -> str | None:
    """A question that the model stops at by itself: only there does going on say something. None: not found."""
    if answer.finish_reason == "stop":
        return TRIAL
    plain = form.without("ignore_eos")
    for question in TRIALS:
        if question == TRIAL and plain == form:
            continue  # `answer` was that
        natural = await inquiry.generate(path, plain.body(question, TRIAL_TOKENS))
        if natural.finish_reason == "stop":
            return question
    return None
