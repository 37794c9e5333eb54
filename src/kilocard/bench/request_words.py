"""What each request asked for, in words: two runs with other sampling are not of the same work."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

#: said in words of their own, or of no interest: the model is in every headline, and all requests stream
_SAID = {"model", "stream", "temperature", "ignore_eos", "stream_options"}


def request_words(fields: Mapping[str, Any]) -> str:
    """ "temperature 0, ignore_eos, usage at the end". Empty for no fields: results of before they were kept."""
    if not fields:
        return ""
    temperature = fields.get("temperature")
    said = ["the server's own temperature" if temperature is None else f"temperature {_shown(temperature)}"]
    if fields.get("ignore_eos"):
        said.append("ignore_eos")
    options = fields.get("stream_options")
    if not isinstance(options, Mapping) or not options.get("include_usage"):
        said.append("no usage")
    elif options.get("continuous_usage_stats"):
        said.append("usage in each chunk")
    else:
        said.append("usage at the end")
    # null is how a field is left out
    more = {name: value for name, value in fields.items() if name not in _SAID and value is not None}
    said += [f"{name} {_shown(value)}" for name, value in more.items()]
    return ", ".join(said)


def _shown(value: object) -> str:
    if isinstance(value, float):
        return f"{value:g}"
    return value if isinstance(value, str) else json.dumps(value)
