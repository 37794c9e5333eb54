"""From a URL to what the load tester needs to know of the server: model, endpoints, what it takes, its gauges.

Every question is short, bounded in time and harmless: lists, metrics pages, and a few requests of at most 24 tokens.
"""

from __future__ import annotations

import json
import ssl
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Literal
from urllib.parse import urlsplit

from kilocard.bench import gauges
from kilocard.bench.ask import Target
from kilocard.bench.form import Form
from kilocard.bench.gauges import Page
from kilocard.bench.inquiry import Answer, Inquiry
from kilocard.bench.server import IgnoreEos, Server
from kilocard.bench.tokenize_page import find_tokenize
from kilocard.core.errors import KilocardError, UpstreamError, UsageError
from kilocard.engines.model_list import MODELS_PATH
from kilocard.engines.recognise import GATEWAY, recognise
from kilocard.metrics.exposition_error import NotExposition
from kilocard.net.client import Response
from kilocard.net.target import parse_target

Endpoint = Literal["chat", "completions"]

PATHS: Mapping[Endpoint, str] = {"chat": "/v1/chat/completions", "completions": "/v1/completions"}
#: environment variables that may hold the key, first one first
KEY_VARIABLES = ("KILOCARD_API_KEY", "OPENAI_API_KEY")
#: ends of a URL that people paste, and that are not part of the base
_ENDS = ("/chat/completions", "/completions", "/models")

#: a question that a model answers in far fewer tokens than it may
TRIAL = "Say OK, and nothing else."
TRIAL_TOKENS = 24


def target_of(
    url: str,
    *,
    api_key: str | None = None,
    environ: Mapping[str, str] | None = None,
    headers: Iterable[tuple[str, str]] = (),
    tls: ssl.SSLContext | None = None,
) -> Target:
    """Where to ask. `url` may end in /v1 or in an endpoint. Raises UsageError for what is no http(s) URL."""
    base = url.strip().rstrip("/")
    if "://" not in base:
        base = f"http://{base}"
    for end in _ENDS:
        base = base.removesuffix(end)
    base = base.removesuffix("/v1").rstrip("/")
    parse_target(base)
    if urlsplit(base).query or urlsplit(base).fragment:
        raise UsageError(f"{url!r} has a query: give the address alone, as in http://127.0.0.1:8000", code="bad_url")
    given = list(headers)
    key = api_key or next((environ[name] for name in KEY_VARIABLES if environ.get(name)), None) if environ else api_key
    if key and not any(name.lower() == "authorization" for name, _ in given):
        given.append(("authorization", f"Bearer {key}"))
    return Target(base, PATHS["chat"], tuple(given), tls)


async def look(
    target: Target,
    *,
    model: str | None = None,
    endpoint: Endpoint | None = None,
    form: Form | None = None,
    metrics_urls: Iterable[str] = (),
    seconds: float = 60.0,
) -> Server:
    """Find out what answers at `target`, in a few seconds.

    `form` holds what the user wants of the bodies (temperature, ignore_eos, extra fields); what the server refuses of
    it is dropped and noted. `metrics_urls` replace the pages that are looked for. `seconds` bounds each generation.
    Raises KilocardErrors that say what, where and what to do.
    """
    async with Inquiry(target, seconds=seconds) as inquiry:
        notes: list[str] = []
        listed, headers = await _models(inquiry, model, notes)
        name = _choose(model, listed, target.url)
        entry = listed.get(name, {})
        wanted = replace(form or Form(name), model=name)
        endpoints = [endpoint] if endpoint else list(PATHS)
        found = await _endpoints(inquiry, wanted, endpoints, notes)
        chosen = next(iter(found))
        path = PATHS[chosen]
        accepted, answer = found[chosen]
        eos, accepted = await _ignore_eos(inquiry, path, accepted, wanted, answer, notes)
        if answer.usage is None or answer.usage.output is None:
            notes.append(
                "the server counts no tokens in streams (usage): lengths are known only where an answer is full"
            )
        pages, page = await _pages(inquiry, list(metrics_urls), notes)
        engine = recognise(entry.get("owned_by"), headers, page)
        if engine == GATEWAY and not any(page.is_gateway for page in pages):
            notes.append("this is a kilocard gateway: give its admin page (…/metrics) as --metrics-url to see its load")
        return Server(
            target=replace(target, path=path),
            model=name,
            form=accepted,
            models=tuple(listed),
            engine=engine,
            max_model_len=_max_model_len(entry),
            chat="chat" in found,
            completions="completions" in found,
            ignore_eos=eos,
            tokenize=await find_tokenize(inquiry, accepted, TRIAL, answer.usage.prompt if answer.usage else None),
            pages=pages,
            notes=tuple(notes),
        )


# --- the model ---


async def _models(
    inquiry: Inquiry, model: str | None, notes: list[str]
) -> tuple[dict[str, dict[str, Any]], Mapping[str, str]]:
    """name → its entry in the list, and the headers of the answer."""
    response = await inquiry.get(MODELS_PATH)
    entries = _entries(response) if response.status == 200 else None
    if entries is not None:
        return entries, response.headers
    if model is None or response.status in {401, 403}:
        if response.status != 200:
            raise inquiry.refusal(response.status, inquiry.message(response), MODELS_PATH)
        raise UpstreamError(
            f"{inquiry.target.url}{MODELS_PATH} is no list of models: is this an OpenAI-compatible server? If it is, "
            "give --model"
        )
    notes.append(f"{MODELS_PATH} answers {response.status} and no list: the model is taken as given")
    return {}, response.headers


def _entries(response: Response) -> dict[str, dict[str, Any]] | None:
    try:
        data = json.loads(response.body)["data"]
        return {str(entry["id"]): entry for entry in data}
    except (ValueError, TypeError, KeyError):
        return None


def _choose(model: str | None, listed: Mapping[str, object], url: str) -> str:
    """The model to ask for. Raises UsageError where it is not clear, with the names that there are."""
    if model is not None:
        # Not in the list is no error: aliases and adapters often are not. The first request will tell.
        return model
    if len(listed) == 1:
        return next(iter(listed))
    if not listed:
        raise UpstreamError(f"{url} serves no model: its list is empty. Load one, or give --model")
    raise UsageError(f"{url} serves {len(listed)} models. Say which with --model: {', '.join(sorted(listed))}")


def _max_model_len(entry: Mapping[str, Any]) -> int | None:
    """vLLM's and SGLang's `max_model_len`, llama.cpp's `meta.n_ctx`."""
    meta = entry.get("meta")
    for value in (entry.get("max_model_len"), meta.get("n_ctx") if isinstance(meta, dict) else None):
        if type(value) is int and value > 0:
            return value
    return None


# --- endpoints and fields ---


async def _endpoints(
    inquiry: Inquiry, form: Form, endpoints: list[Endpoint], notes: list[str]
) -> dict[Endpoint, tuple[Form, Answer]]:
    """Endpoints that answer, with the form that each takes. Raises the first one's error if none does."""
    found: dict[Endpoint, tuple[Form, Answer]] = {}
    first: KilocardError | None = None
    for endpoint in endpoints:
        own: list[str] = []
        try:
            found[endpoint] = await _accepted(inquiry, PATHS[endpoint], replace(form, chat=endpoint == "chat"), own)
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


async def _accepted(inquiry: Inquiry, path: str, form: Form, notes: list[str]) -> tuple[Form, Answer]:
    """Send the form; drop optional fields that the server refuses, and say so."""
    tried_bare = False
    while True:
        answer = await inquiry.generate(path, form.body(TRIAL, TRIAL_TOKENS))
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


async def _ignore_eos(
    inquiry: Inquiry, path: str, form: Form, wanted: Form, answer: Answer, notes: list[str]
) -> tuple[IgnoreEos, Form]:
    """Does an answer go on to the asked length? `answer` is that to TRIAL, in `form`."""
    if not wanted.ignore_eos:
        return IgnoreEos.UNSEEN, form
    if form.ignore_eos:
        if answer.finish_reason == "length":
            # Only if the model would have stopped does this say anything.
            natural = await inquiry.generate(path, form.without("ignore_eos").body(TRIAL, TRIAL_TOKENS))
            return (IgnoreEos.WORKS if natural.finish_reason == "stop" else IgnoreEos.UNSEEN), form
        found = IgnoreEos.IGNORED
    else:
        found = IgnoreEos.REFUSED
    other = replace(form, min_tokens=True)
    second = await inquiry.generate(path, other.body(TRIAL, TRIAL_TOKENS))
    if second.status == 200 and second.finish_reason == "length":
        notes.append(f"ignore_eos is {found.value}: min_tokens is sent, and answers have the asked length")
        return IgnoreEos.MIN_TOKENS, other
    notes.append(f"ignore_eos is {found.value}: answers end where the model wants, and have the length that they have")
    return found, form


# --- gauges ---


async def _pages(inquiry: Inquiry, urls: list[str], notes: list[str]) -> tuple[tuple[Page, ...], bytes]:
    """Metrics pages that are understood, and the body of one of them. Those that were named must be there."""
    if urls:
        named = [await _named_page(inquiry, url) for url in urls]
        return tuple(page for page, _ in named), named[0][1]
    for path in gauges.PATHS:
        response = await inquiry.page(inquiry.target.url + path)
        if response is None:
            continue
        try:
            page = gauges.page_of(inquiry.target.url + path, response.body)
        except NotExposition:
            continue
        if page is not None:
            return (page,), response.body
    notes.append("no metrics page was found: queue, KV cache and prefix hits of the engine are unknown")
    return (), b""


async def _named_page(inquiry: Inquiry, url: str) -> tuple[Page, bytes]:
    parse_target(url)
    response = await inquiry.page(url)
    if response is None:
        raise UpstreamError(f"--metrics-url {url}: there is no such page, or it does not answer")
    page = gauges.page_of(url, response.body)
    if page is None:
        raise UpstreamError(f"--metrics-url {url}: nothing on this page is known here: is it the engine's own?")
    return page, response.body
