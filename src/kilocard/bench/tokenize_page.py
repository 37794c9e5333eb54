"""The server's own token counter, where it has one: far cheaper than asking for a generation."""

from __future__ import annotations

import json
from typing import Any

from kilocard.bench.form import Form
from kilocard.bench.inquiry import PAGE_SECONDS, Inquiry
from kilocard.bench.server import TokenizePage
from kilocard.core.errors import UpstreamError

#: vLLM's, which knows the chat template; llama.cpp's, which wants it applied before
_PAGES = (TokenizePage("/tokenize"), TokenizePage("/tokenize", "/apply-template"))


async def find_tokenize(inquiry: Inquiry, form: Form, text: str, tokens: int | None) -> TokenizePage | None:
    """A page that says `tokens` for `text`, as `usage` did. Any other answer makes it useless: None."""
    if tokens is None:
        return None
    for page in _PAGES:
        if await ask_tokenize(inquiry, page, form, text) == tokens:
            return page
    return None


async def ask_tokenize(inquiry: Inquiry, page: TokenizePage, form: Form, text: str) -> int | None:
    """Tokens of the whole prompt; None where the page does not say."""
    messages = [{"role": "user", "content": text}]
    said: dict[str, Any]
    if page.template_path is None:
        said = {"model": form.model, "messages": messages} if form.chat else {"model": form.model, "prompt": text}
    else:
        if form.chat:
            templated = await _post(inquiry, page.template_path, {"messages": messages})
            prompt = templated.get("prompt") if templated else None
            if not isinstance(prompt, str):
                return None
            text = prompt
        said = {"content": text, "add_special": True, "parse_special": True}
    answer = await _post(inquiry, page.path, said)
    if answer is None:
        return None
    count, tokens = answer.get("count"), answer.get("tokens")
    if type(count) is int:
        return count
    return len(tokens) if isinstance(tokens, list) else None


async def _post(inquiry: Inquiry, path: str, said: dict[str, Any]) -> dict[str, Any] | None:
    try:
        response = await inquiry.post(path, json.dumps(said).encode(), PAGE_SECONDS)
        answer = json.loads(response.body) if response.status == 200 else None
    except (UpstreamError, ValueError):
        return None
    return answer if isinstance(answer, dict) else None
