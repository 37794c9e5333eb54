"""Bodies that are refused as poison now: what a worker that starts later has to know. Pure."""

from __future__ import annotations

from collections import OrderedDict

import msgspec

from kilocard.dispatch.docket import CONVICTIONS
from kilocard.workers.messages import Convicted


class Convictions:
    def __init__(self) -> None:
        #: by fingerprint: what was said, and when it ends (seconds)
        self._known: OrderedDict[str, tuple[Convicted, float]] = OrderedDict()

    def add(self, news: Convicted, now: float) -> None:
        self._known[news.fingerprint] = (news, now + news.ttl)
        if len(self._known) > CONVICTIONS:
            self._known.popitem(last=False)

    def now(self, now: float) -> list[Convicted]:
        """Those that are not over, with the seconds that are left of them."""
        self._known = OrderedDict((key, entry) for key, entry in self._known.items() if now < entry[1])
        return [msgspec.structs.replace(news, ttl=until - now) for news, until in self._known.values()]
