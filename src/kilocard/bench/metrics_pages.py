"""Finding the metrics pages of a server, or those that the user names."""

from __future__ import annotations

from collections.abc import Iterable
from urllib.parse import quote

from kilocard.bench import gauges
from kilocard.bench.gauges import Page
from kilocard.bench.inquiry import Inquiry
from kilocard.core.errors import UpstreamError
from kilocard.metrics.exact import parse
from kilocard.metrics.exposition_error import NotExposition
from kilocard.metrics.load import kv_block_size
from kilocard.net.target import parse_target


async def find_pages(inquiry: Inquiry, urls: list[str], model: str) -> tuple[list[Page], list[bytes]]:
    """Metrics pages that are understood, and their bodies. Those that were named must be there."""
    if urls:
        named = [await _named_page(inquiry, url) for url in urls]
        return [page for page, _ in named], [body for _, body in named]
    # llama.cpp's router wants to know of which model.
    for path in (*gauges.PATHS, f"/metrics?model={quote(model, safe='')}"):
        response = await inquiry.page(inquiry.target.url + path)
        if response is None:
            continue
        try:
            page = gauges.page_of(inquiry.target.url + path, response.body)
        except NotExposition:
            continue
        if page is not None:
            return [page], [response.body]
    return [], []


async def _named_page(inquiry: Inquiry, url: str) -> tuple[Page, bytes]:
    parse_target(url)
    response = await inquiry.page(url)
    if response is None:
        raise UpstreamError(f"--metrics-url {url}: there is no such page, or it does not answer")
    try:
        page = gauges.page_of(url, response.body)
    except NotExposition as error:
        raise UpstreamError(f"--metrics-url {url}: {error}") from error
    if page is None:
        raise UpstreamError(f"--metrics-url {url}: nothing on this page is known here. Is it the engine's own?")
    return page, response.body


def block_size(pages: Iterable[Page], bodies: Iterable[bytes]) -> int | None:
    """Tokens of a KV block; None where not all replicas state the same."""
    sizes = {kv_block_size(parse(body).samples, page.dialect) for page, body in zip(pages, bodies, strict=True)}
    return sizes.pop() if len(sizes) == 1 else None


def kv_tokens(pages: Iterable[Page], bodies: Iterable[bytes]) -> int | None:
    """Of all replicas together; None where one does not say."""
    each = [page.read(body, 0.0).kv_tokens for page, body in zip(pages, bodies, strict=True)]
    known = [tokens for tokens in each if tokens is not None]
    return int(sum(known)) if known and len(known) == len(each) else None
