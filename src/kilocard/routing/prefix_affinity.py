"""Where a prompt's first token is expected soonest: waiting there, and computing what is not cached there."""

from __future__ import annotations

from collections.abc import Collection, Container, Sequence
from random import Random
from typing import Final

from kilocard.core.decision import Decision
from kilocard.core.load import LoadSample
from kilocard.core.prefix import Prefix
from kilocard.routing.base import Outcome
from kilocard.routing.gauged import LONE
from kilocard.routing.load import ReplicaLoad
from kilocard.routing.prefix_cache import COVERED
from kilocard.routing.prefix_index import Holder, PrefixIndex
from kilocard.routing.queue_depth import PREFILL_PER_REQUEST, QueueDepth
from kilocard.routing.ring import Ring
from kilocard.routing.speeds import Speed, Speeds
from kilocard.routing.trust import Trust, restarted

CACHED_HERE: Final = "prefix_affinity: soonest first token, part of the prompt is cached"
CACHED_ELSEWHERE: Final = "prefix_affinity: soonest first token, where more is cached would take longer"
#: replicas with a cached beginning that are compared with the least loaded one
CANDIDATES: Final = 4
#: affinity ends where a replica has more requests than BOUND × the mean of those available + SPARE; beside other
#: gateways, of whose requests a gauge tells within `coarse`, so many more as they have of the load
BOUND: Final = 1.25
SPARE: Final = 2.0
#: KV cache of a replica that does not say how large it is: a 7B model on a card of 40 GB
USUAL_KV_TOKENS: Final = 200_000
#: share of it for beginnings of prompts; the rest is for answers and for what nobody repeats
FOR_PROMPTS: Final = 0.8
#: share of a prompt that a named session's place is worth at least: it was asked for
NAMED: Final = 0.5
#: turns that find at its home what a usual prompt shares: this one, and the next
TURNS: Final = 2.0
#: a smaller share of the load is an error of the estimate
LEAST_OWN: Final = 0.02
#: share of the newest request in the running mean of what is reused
NEW_REUSED: Final = 0.02

_new: Final = tuple.__new__


class _Record:
    """What is known of one replica."""

    __slots__ = ("listed", "load", "replica", "sample", "slot", "speed", "units")

    def __init__(self, replica: ReplicaLoad, slot: int) -> None:
        self.replica = replica
        self.slot = slot
        self.listed = False
        #: requests there when it was scored last, and the score without the factor where gauges are believed in full
        self.load = 0.0
        self.units = 0.0
        self.speed = Speed()
        self.sample: LoadSample | None = None


class PrefixAffinity(QueueDepth):
    """cost = (queue_depth's score × 256 tokens + prompt tokens − expected hit) × seconds per token of the replica.

    queue_depth counts a request that is there as 256 prompt tokens; here both are tokens that come before the first
    token of the new one, so the two add up. Where nothing is cached the prompt costs the same everywhere, and the
    choice is queue_depth's, ties and chance included.

    The expected hit is what PrefixIndex believes, × Trust. Where other gateways or workers send to the same replicas,
    a conversation that nobody here has seen is worth something at its home on the Ring: there they look for it too.

    Gauges count by `belief` where the least loaded replica is looked for, and in full where it is compared with one for
    which more than the load speaks: that all gateways take the same one is no danger there, that it is crowded is.
    """

    name = "prefix_affinity"
    observes = True
    reason = "prefix_affinity: soonest first token, nothing cached"
    at_home = "prefix_affinity: home of the conversation"

    def __init__(self, rng: Random) -> None:
        super().__init__(rng)
        self.index = PrefixIndex()
        self.trust = Trust()
        self._ring = Ring()
        self._speeds = Speeds()
        self._records: dict[str, _Record] = {}
        self._slots: list[_Record | None] = []
        #: replicas that can be chosen: a bit for each slot, their number, the requests they have
        self._open = 0
        self._count = 0
        self._total = 0.0
        #: running mean of the tokens of a prompt that some replica had from us and most had not: of what it is worth to
        #: keep a conversation in one place, as much as comes through here
        self.reused = 0.0
        self._turn = 0

    # -- replicas

    def score(self, replica: ReplicaLoad) -> float:
        """In requests of the pool's usual replica, without any prompt."""
        record = self._records.get(replica.id)
        units = super().score(replica)
        return units if record is None else record.speed.factor * units

    def add(self, replica: ReplicaLoad) -> None:
        record = self._records.get(replica.id)
        if record is None or record.replica is not replica:
            record = self._meet(replica)
        self._index.put(replica.id, self._note(record), self.blur)
        if not record.listed:
            record.listed = True
            self._open |= 1 << record.slot
            self._count += 1
            self._total += record.load

    def update(self, replica: ReplicaLoad) -> None:
        self._changed[replica.id] = replica
        record = self._records[replica.id]
        if replica.sample is not record.sample:
            self._read(record, replica.sample)

    def _note(self, record: _Record) -> float:
        """Its load has changed: what of it the choice needs. Returns the score."""
        replica = record.replica
        load = replica.in_flight + replica.foreign
        if record.listed:
            self._total += load - record.load
        record.load = load
        own, gauged = self.parts(replica)
        record.units = own + gauged
        return record.speed.factor * (own + self.belief * gauged)

    def remove(self, replica: ReplicaLoad) -> None:
        super().remove(replica)
        record = self._records.get(replica.id)
        if record is not None and record.listed:
            record.listed = False
            self._open &= ~(1 << record.slot)
            self._count -= 1
            self._total = self._total - record.load if self._count else 0.0

    def forget(self, replica: ReplicaLoad) -> None:
        super().forget(replica)
        record = self._records.pop(replica.id, None)
        if record is not None:
            self._slots[record.slot] = None
            self.index.drop(record.slot)
            self._ring.remove(record.slot)

    def lost_cache(self, replica: ReplicaLoad) -> None:
        record = self._records.get(replica.id)
        if record is not None:
            self.index.add(record.slot, self._capacity(replica))

    def _meet(self, replica: ReplicaLoad) -> _Record:
        """A replica that is new, or came back as another one under the same name."""
        known = self._records.get(replica.id)
        if known is not None:
            self.forget(known.replica)
        if None in self._slots:
            slot = self._slots.index(None)
        else:
            slot = len(self._slots)
            self._slots.append(None)
        record = self._records[replica.id] = self._slots[slot] = _Record(replica, slot)
        self.index.add(slot, self._capacity(replica))
        self._ring.add(replica.id, slot)
        return record

    def _capacity(self, replica: ReplicaLoad) -> float:
        """Tokens of its cache for prompts that come from here."""
        return FOR_PROMPTS * (1.0 / replica.kv_per_token if replica.kv_per_token else USUAL_KV_TOKENS)

    def _read(self, record: _Record, sample: LoadSample | None) -> None:
        before, record.sample = record.sample, sample
        if before is None or sample is None:
            return
        if restarted(before, sample):
            self.lost_cache(record.replica)
        else:
            self.trust.read(before, sample)
            self.index.resize(record.slot, self._capacity(record.replica))

    # -- the choice

    def _rescore(self) -> None:
        index, records, blur = self._index, self._records, self.blur
        for id in self._changed:
            index.put(id, self._note(records[id]), blur)

    def choose(self, exclude: Container[str] = (), prefix: Prefix | None = None) -> Decision | None:
        if self._changed:
            self._refresh()
        first = self._index.best(exclude)
        if first is None:
            return None
        seconds = self._speeds.line.slope / PREFILL_PER_REQUEST
        if prefix is None:
            return _new(Decision, (first[2], self.reason, first[0] * seconds, 0))
        least = best = self._records[first[2]]
        tokens, share = prefix.tokens, self.trust.share
        self._turn = (self._turn + 1) % len(self._slots)
        rivals, matched = self._rivals(prefix, least.slot)
        hit = cached = COVERED[matched]
        reason = self.reason
        cost = least.speed.factor * (least.units + (tokens - share * hit) * PREFILL_PER_REQUEST)
        most = BOUND * self._total / self._count + SPARE + self.coarse * self.others
        for slot, keys, there, worth in rivals:
            record = self._slots[slot]
            assert record is not None
            if there > cached:
                cached = there
            rival = record.speed.factor * (record.units + (tokens - worth) * PREFILL_PER_REQUEST)
            if rival < cost and (record.load < most or record is least) and record.replica.id not in exclude:
                best, cost, hit, matched = record, rival, there, keys
                reason = self.at_home if worth > there else self.reason
        if reason is self.reason and cached and share:
            reason = CACHED_HERE if hit else CACHED_ELSEWHERE
        self._remember(best, prefix, hit, cached, matched)
        return _new(Decision, (best.replica.id, reason, cost * seconds, min(tokens, int(share * hit))))

    def lowest(
        self, count: int, exclude: Collection[str] = (), prefix: Prefix | None = None
    ) -> list[tuple[float, str]]:
        seconds = self._speeds.line.slope / PREFILL_PER_REQUEST
        scores = {id: score for score, id in super().lowest(count, exclude)}
        if prefix is not None:
            records, share = self._records, self.trust.share
            worths = {id: share * self.index.hit(records[id].slot, prefix.keys) for id in scores}
            for slot, _, _, worth in self._rivals(prefix, len(self._slots))[0]:
                record = self._slots[slot]
                if record is not None and (id := record.replica.id) not in exclude:
                    worths[id] = max(worth, worths.get(id, 0.0))
            for id, worth in worths.items():
                own, gauged = self.parts(records[id].replica)
                units = own + gauged + (prefix.tokens - worth) * PREFILL_PER_REQUEST
                scores[id] = records[id].speed.factor * units
        return sorted((score * seconds, id) for id, score in scores.items())[:count]

    def _rivals(self, prefix: Prefix, least: int) -> tuple[list[tuple[int, int, int, float]], int]:
        """(slot, keys that are known there, tokens cached there, tokens that speak for it) of replicas for which more
        than the load speaks, −1 keys: not looked for; and how many keys the least loaded one, in slot `least`, has. Who
        has no more than that one is not worth a look."""
        _, keys, home, session = prefix
        share = self.trust.share
        holders, matched = self.index.holders(keys, self._open, least, CANDIDATES, self._turn)
        found = [(slot, count, there, share * there) for slot, count, there in holders]
        worth = 0.0
        if self.others >= LONE:
            # the turn before came through here as seldom as any request does: of reuse we see our share only
            reused = self.reused / max(LEAST_OWN, 1.0 - self.others)
            worth = TURNS * share * self.others * min(reused, prefix.tokens - COVERED[matched])
        if session:
            known = self.index.session(session)
            if known is not None and self._open >> known[0] & 1:
                there = min(known[1], prefix.tokens)
                found.append((known[0], -1, there, max(share, NAMED) * there))
                return found, matched
            home = session
            worth = max(worth, NAMED * prefix.tokens)
        if home and worth > 0.0:
            place = self._ring.home(home, self._open)
            if place is not None:
                count = self._known_at(place, keys, holders, matched)
                there = COVERED[count]
                found.append((place, count, there, share * there + worth))
        return found, matched

    def _known_at(self, slot: int, keys: Sequence[int], holders: list[Holder], matched: int) -> int:
        """How many keys this replica has, where the holders of more than `matched` are known."""
        for holder, count, _ in holders:
            if holder == slot:
                return count
        return self.index.matched(slot, keys, matched if len(holders) < CANDIDATES else len(keys))

    def _remember(self, record: _Record, prefix: Prefix, hit: int, cached: int, matched: int) -> None:
        """The prompt goes there, where `hit` tokens and `matched` keys of it are; `cached`: the most of it that any
        replica has."""
        tokens = prefix.tokens
        if self.others >= LONE and not self._turn & 3:  # a sample will do
            common = self.index.common(prefix.keys, self._open, self._count // 2)
            self.reused += NEW_REUSED * (cached - common - self.reused)
        self.index.put(record.slot, prefix.keys, tokens, prefix.session, matched)
        self.trust.sent(tokens, hit if hit < tokens else tokens)

    # -- speeds

    def observe(self, replica: ReplicaLoad, outcome: Outcome) -> None:
        """Streamed answers tell of speeds; of others the first byte is the last."""
        if outcome.ahead and outcome.first_content_s is not None and outcome.decode_s is None:
            record = self._records.get(replica.id)
            if record is not None:
                self._speeds.observe(record.speed, len(self._records), outcome.ahead, outcome.first_content_s)
