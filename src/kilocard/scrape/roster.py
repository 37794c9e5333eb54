"""What one source of discovery has told so far, and what changes when it tells more. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from kilocard.core.replica import Change, Endpoint, Found, Leaving, Lost


class Roster:
    """Turns "these are there now" into Found, Leaving and Lost, each told once.

    A replica that is no longer named is Leaving first and Lost `grace` seconds later, so that its running streams
    may end; with grace 0 it is Lost at once. Named again meanwhile, it is Found again.
    """

    def __init__(self, grace: float = 0.0) -> None:
        self.grace = grace
        self._serving: dict[str, Endpoint] = {}
        #: replica → when it is to be lost; infinity: as long as the source still names it
        self._leaving: dict[str, float] = {}

    def update(
        self, now: float, serving: Mapping[str, Endpoint], leaving: Mapping[str, str], gone: str
    ) -> list[Change]:
        """The source's whole present view. `leaving`: replica → reason; `gone`: the reason for those not named.

        A replica that is only known as leaving is not news: nobody was told that it was there.
        """
        changes: list[Change] = []
        for replica, endpoint in serving.items():
            if self._serving.get(replica) != endpoint:
                changes.append(Found(endpoint))
                self._serving[replica] = endpoint
            self._leaving.pop(replica, None)
        for replica in [r for r in self._serving if r not in serving]:
            del self._serving[replica]
            if replica in leaving:
                changes.append(Leaving(replica, leaving[replica]))
                self._leaving[replica] = float("inf")
            elif self.grace > 0:
                changes.append(Leaving(replica, gone))
                self._leaving[replica] = now + self.grace
            else:
                changes.append(Lost(replica, gone))
        for replica, until in list(self._leaving.items()):
            if replica in leaving:
                self._leaving[replica] = float("inf")
            elif until == float("inf"):
                self._leaving[replica] = now + self.grace
        return changes + self.expire(now, gone)

    def expire(self, now: float, gone: str) -> list[Change]:
        """Lost for those whose grace is over."""
        over = [replica for replica, until in self._leaving.items() if until <= now]
        for replica in over:
            del self._leaving[replica]
        return [Lost(replica, gone) for replica in over]

    @property
    def serving(self) -> Mapping[str, Endpoint]:
        return self._serving

    @property
    def leaving(self) -> frozenset[str]:
        return frozenset(self._leaving)
