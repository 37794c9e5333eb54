"""Looks at prompts for models whose policy wants to know how they begin, or for the decision log."""

from __future__ import annotations

import re
from collections.abc import Mapping

from kilocard.core.prefix import Prefix
from kilocard.gateway.request import Inbound
from kilocard.spec.model import ModelSpec
from kilocard.spec.vocabulary import READS_PROMPTS
from kilocard.wire.prompt_text import prefix_of

#: a session's name is cut here
LONGEST_SESSION = 1024


class PromptKeys:
    """By model, what finds the name of a request's session among its header lines; None: no header names it.

    `of_all`: prompts of every model are looked at, whatever its policy.
    """

    def __init__(self, models: Mapping[str, ModelSpec], *, of_all: bool = False) -> None:
        self.models: dict[str, re.Pattern[bytes] | None] = {
            name: None if spec.affinity.header is None else _line(spec.affinity.header)
            for name, spec in models.items()
            if of_all or spec.policy in READS_PROMPTS
        }

    def of(self, inbound: Inbound) -> Prefix | None:
        """Only for a model that is in `models`."""
        route = inbound.route
        if route.multipart or not route.generates:
            return None
        line = self.models[inbound.model]
        session = b""
        if line is not None and (found := line.search(inbound.head.forward)) is not None:
            # a tenant's sessions are its own
            session = b"%b\n%b" % (inbound.tenant.name.encode(), found[1][:LONGEST_SESSION])
        return prefix_of(inbound.model, inbound.body, inbound.prompt_tokens, session)


def _line(header: str) -> re.Pattern[bytes]:
    return re.compile(rb"(?im)^%b:[ \t]*([^\r\n]*[^\r\n \t])" % re.escape(header.encode()))
