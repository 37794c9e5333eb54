"""What of a response is kept until it is clear that it is the answer."""

from __future__ import annotations

#: a whole response up to this size is gathered before any of it is sent, so that it can still be retried
MAX_GATHERED = 1024 * 1024
#: statuses that another replica may do better on
RETRYABLE = frozenset({429, 500, 502, 503, 504})
