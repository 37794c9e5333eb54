"""Error answers by which an engine says that it is not the one to ask: its model is not there yet. Pure."""

from __future__ import annotations

import json
import re
from typing import Any

#: no such answer is longer (bytes); one that is longer tells of something else
LONGEST = 2048
#: The whole message, never a part of it: engines repeat clients' words in their errors, and a client must not be able
#: to say for a replica that it is not ready. KServe, llama.cpp, Hugging Face's servers, and what their kin say.
_NOT_READY = re.compile(
    r"(?:(?:the )?(?:model|server|engine|service)(?: with name)?(?: \S{1,200})?(?: is)?"
    r"(?: not (?:yet )?(?:ready|loaded|initialized)(?: yet)?(?: to accept requests)?"
    r"|(?: still| currently)?(?: being loaded| loading| initializing| starting(?: up)?| warming up))"
    r"|loading model)(?:[.,;] ?(?:please )?(?:try again|retry|wait)(?: later| soon)?)?[.!]?",
    re.IGNORECASE,
)
#: vLLM (adapters that are not loaded), KServe, Ollama
_NO_SUCH_MODEL = re.compile(
    r"(?:the )?model(?: with name)? \S{1,200} (?:does not exist|not found)(?:, try pulling it first)?\.?", re.IGNORECASE
)


def is_not_ready(body: bytes) -> bool:
    """Whether an error's body says that the model can't serve yet, so that nothing was done for the request."""
    return _NOT_READY.fullmatch(_message(body)) is not None


def lacks_model(body: bytes) -> bool:
    """Whether a 404's body says that this replica has no such model."""
    return _NO_SUCH_MODEL.fullmatch(_message(body)) is not None


def _message(body: bytes) -> str:
    """`{"error": {"message": …}}` of OpenAI, `{"error": …}`, `{"message": …}` and `{"detail": …}` (FastAPI) of others,
    or the whole page where it is plain text; "" for anything else."""
    if len(body) > LONGEST:
        return ""
    try:
        page: Any = json.loads(body)
        error = page.get("error", page)
        text = error.get("message", error.get("detail")) if isinstance(error, dict) else error
    except ValueError:
        return body.decode("utf-8", "replace").strip()
    except (AttributeError, RecursionError):
        return ""
    return text.strip() if isinstance(text, str) else ""
