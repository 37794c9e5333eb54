"""From a URL to what the load tester needs to know of the server: model, endpoints, what it takes, its gauges.

Every question is short, bounded in time and harmless: lists, metrics pages, and a few requests of at most 24 tokens.
"""

from __future__ import annotations

import json
import ssl
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

from kilocard.bench.accepted import PATHS, TRIAL, Endpoint, endpoints, try_ignore_eos
from kilocard.bench.ask import Target
from kilocard.bench.form import Form
from kilocard.bench.inquiry import Inquiry
from kilocard.bench.metrics_pages import block_size, find_pages, kv_tokens
from kilocard.bench.server import Server
from kilocard.bench.tokenize_page import find_tokenize
from kilocard.core.errors import UpstreamError, UsageError
from kilocard.engines.model_list import MODELS_PATH
from kilocard.engines.recognise import FACT_PAGES, GATEWAY, ServerFacts, facts, recognise
from kilocard.net.client import Response
from kilocard.net.target import parse_target

#: environment variables that may hold the key, first one first
KEY_VARIABLES = ("KILOCARD_API_KEY", "OPENAI_API_KEY")
#: ends of a URL that people paste, and that are not part of the base
_ENDS = ("/chat/completions", "/completions", "/models")


def target_of(
    url: str,
    *,
    api_key: str | None = None,
    environ: Mapping[str, str] | None = None,
    headers: Iterable[tuple[str, str]] = (),
    tls: ssl.SSLContext | None = None,
) -> Target:
    """Where to ask. `url` may end in /v1 or in an endpoint. Raises UsageError for what is no http(s) URL."""
    base = url.strip()
    base = (base if "://" in base else f"http://{base}").rstrip("/")
    for end in _ENDS:
        base = base.removesuffix(end)
    base = base.removesuffix("/v1").rstrip("/")
    parse_target(base)
    if urlsplit(base).query or urlsplit(base).fragment:
        raise UsageError(f"{url!r} has a query: give the address alone, as in http://127.0.0.1:8000", code="bad_url")
    given = list(headers)
    key = api_key or next((value for name in KEY_VARIABLES if (value := (environ or {}).get(name))), None)
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
    seconds: float = 120.0,
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
        found = await endpoints(inquiry, wanted, [endpoint] if endpoint else PATHS, notes)
        chosen = next(iter(found))
        path = PATHS[chosen]
        accepted, answer = found[chosen]
        eos, accepted = await try_ignore_eos(inquiry, path, accepted, wanted, answer, notes)
        if answer.usage is None or answer.usage.output is None:
            notes.append(
                "the server counts no tokens in streams (usage): lengths are known only where an answer is full"
            )
        pages, bodies = await find_pages(inquiry, list(metrics_urls), name)
        engine = recognise(entry.get("owned_by"), headers, b"\n".join(bodies))
        said = await _facts(inquiry) if engine != GATEWAY else ServerFacts()
        if not pages:
            seen = "its replicas" if engine == GATEWAY else "the engine"
            notes.append(f"no metrics page was found: queue, KV cache and prefix hits of {seen} are unknown")
        if engine == GATEWAY and not pages:
            notes.append("this is a kilocard gateway: its admin address has a metrics page for --metrics-url")
        return Server(
            target=replace(target, path=path),
            model=name,
            form=accepted,
            models=tuple(listed),
            engine=engine,
            engine_version=said.version,
            max_num_seqs=said.max_running,
            kv_tokens=kv_tokens(pages, bodies),
            block_size=block_size(pages, bodies),
            max_model_len=_max_model_len(entry),
            chat="chat" in found,
            completions="completions" in found,
            ignore_eos=eos,
            tokenize=await find_tokenize(inquiry, accepted, TRIAL, answer.usage.prompt if answer.usage else None),
            pages=tuple(pages),
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


async def _facts(inquiry: Inquiry) -> ServerFacts:
    for path in FACT_PAGES:
        response = await inquiry.page(inquiry.target.url + path)
        if response is not None and (said := facts(path, response.body)) != ServerFacts():
            return said
    return ServerFacts()
