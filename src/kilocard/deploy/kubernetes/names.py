"""Names of Kubernetes objects, from pools' names."""

from __future__ import annotations

import hashlib
import re

#: in front of every object's name. Besides grouping them it keeps a Service from being called `vllm`, for which
#: Kubernetes would set VLLM_PORT=tcp://… in every pod of the namespace, which vLLM takes for its own variable.
PREFIX = "kilocard"
#: a Service's name is a DNS label: 63 characters
LONGEST = 63
#: Deployments and LeaderWorkerSets put an ordinal or a hash behind their names in pods' names and labels
_ROOM = 16


def object_name(*parts: str) -> str:
    """A DNS label of PREFIX and `parts`. Different parts give different names: what had to be changed gets a hash."""
    asked = "-".join((PREFIX, *parts))
    if _cleaned(asked) == asked and len(asked) <= LONGEST - _ROOM:
        return asked
    return _hashed(asked)


def label(text: str) -> str:
    """`text` as a label's value: 63 characters, letters, digits, - _ and . (a pool's own name nearly always is)."""
    if re.fullmatch(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?", text):
        return text
    return _hashed(f"{PREFIX}-{text}").removeprefix(PREFIX).strip("-")


def _cleaned(name: str) -> str:
    return re.sub(r"[^a-z0-9-]+", "-", name.lower()).strip("-")


def _hashed(name: str) -> str:
    short = hashlib.sha256(name.encode()).hexdigest()[:8]
    return f"{_cleaned(name)[: LONGEST - _ROOM - 9].rstrip('-')}-{short}"
