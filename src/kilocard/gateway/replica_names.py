"""What clients may call a replica. Its id is often its address, and clients never see where replicas live."""

from __future__ import annotations

from kilocard.core.replica import Endpoint

#: replicas that are remembered
MOST = 10_000


class ReplicaNames:
    """Ids that are no address are shown; of the others each gets a number in its pool, in the order of their coming.

    A replica that comes back has its number again. Numbers of several gateways differ; GET /state says what each means.
    """

    def __init__(self) -> None:
        self._names: dict[str, str] = {}
        self._count: dict[str, int] = {}

    def found(self, endpoint: Endpoint) -> None:
        replica, pool, url = endpoint
        if replica in self._names:
            return
        if url.partition("://")[2] not in replica:
            self._names[replica] = replica
        else:
            number = self._count[pool] = self._count.get(pool, 0) + 1
            self._names[replica] = f"{pool}#{number}"
        if len(self._names) > MOST:
            del self._names[next(iter(self._names))]

    def of(self, replica: str) -> str:
        return self._names.get(replica, "?")
