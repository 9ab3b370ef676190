"""The durable queues as of the last applied event: a layer of changes over the last checkpoint.

Promise: a reader sees exactly what the applied prefix of the stream leads to, whether or not a checkpoint is being
written at the moment. Algorithm: changes go to the *fresh* layer; when a checkpoint begins, the fresh layer becomes
the *frozen* one, which nobody changes while a thread writes it; when it is written, the frozen layer is dropped and the
base shows it instead. A message that came and went between two checkpoints never reaches the base at all.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from heapq import merge
from itertools import islice, takewhile
from types import MappingProxyType
from typing import TypeVar

from txobserver.configuration import Configuration, Configured
from txobserver.digest import Tally
from txobserver.events import Configure, Message
from txobserver.ids import Position
from txobserver.outcomes import Outcome, PreparedBranch, Remembered
from txobserver.ports.store import END, IDS_PASSED, PAGE, Base, Changes, Dropped, Entry, Ids, Meta, QueueSummary
from txobserver.state.offsets import Places
from txobserver.state.reading import Reading
from txobserver.state.shown import Kept, ShownBase
from txobserver.state.transaction_table import TransactionTable, described
from txobserver.xid import Global, Xid

ADDITION_BYTES = 200
REMOVAL_BYTES = 50
"""What a message, beside its properties and body, and a removal are counted for until a checkpoint has been written."""

NO_RIDS: Mapping[int, int] = MappingProxyType({})
Shown = TypeVar("Shown")
Batch = list[tuple[int, Shown]]


class Contents:
    """Durable queues and configuration. ``base`` must show the state that ``meta`` belongs to."""

    def __init__(self, base: Base, meta: Meta, remembered: Iterable[Remembered] = ()) -> None:
        self._base = base
        self._shown = ShownBase(base)
        self._configuration = meta.configuration.copy()
        self.applied = meta.applied
        self._tallies = {queue: Tally(each.count, each.digest, each.mark) for queue, each in meta.summaries.items()}
        self.table = TransactionTable(meta.outcomes, remembered)
        self._fresh: Changes = {}
        self._frozen: Changes = {}
        self._fresh_places: dict[int, Places] = {}
        self._frozen_places: dict[int, Places] = {}
        self._reused: set[tuple[int, int]] = set()
        self._readings: dict[int, list[Reading]] = {}
        self.dirty_bytes = 0
        self._frozen_bytes = 0

    @property
    def held_bytes(self) -> int:
        """Bytes of change that are in memory only, those of a checkpoint that is being written among them."""
        return self.dirty_bytes + self._frozen_bytes

    @property
    def configuration(self) -> Configuration:
        """The durable configuration."""
        return self._configuration

    @configuration.setter
    def configuration(self, value: Configuration) -> None:
        self._configuration = value

    def configure(self, step: Configure) -> Configured:
        """Carry out a step of configuration, and what it means for queues. Raises ValueError, StoreDamaged."""
        done = self._configuration.apply(step, self.holds)
        if done.deleted is not None:
            self.drop_queue(done.deleted)
        if self._configuration.queue_number(step.name) == step.config_id:
            self.add_queue(step.config_id)
        return done

    def holds(self, queue: int, spared: Sequence[int]) -> bool:
        """Whether a queue holds a message that is neither ``spared`` nor locked by a prepared branch.

        Costs what is spared, however many there are, and reads no message. Raises StoreDamaged.
        """
        outside = self.table.locked(queue).union(spared)
        count = self.summary(queue).count
        return count > len(outside) or count > sum(self._stands(queue, place) for place in outside)

    def summary(self, queue: int) -> QueueSummary:
        """Count, digest and mark of a queue; zeros for one that is not known."""
        tally = self._tallies.get(queue)
        return QueueSummary() if tally is None else _summary(tally)

    def add_queue(self, queue: int) -> None:
        """A queue was declared."""
        self._tallies.setdefault(queue, Tally())

    def knows(self, queue: int) -> bool:
        """Whether this queue has been declared and not deleted."""
        return queue in self._tallies

    def drop_queue(self, queue: int) -> None:
        """A queue was deleted, with all that it holds."""
        self._tallies.pop(queue, None)
        self._fresh.pop(queue, None)
        self._fresh_places.pop(queue, None)
        self._shown.drop(queue, Kept())
        for reading in self._readings.get(queue, ()):
            reading.dropped()

    def purge(self, queue: int, place: int, spared: Sequence[int], rids: Mapping[int, int] = NO_RIDS) -> int:
        """Take everything up to ``place`` out of a queue but ``spared``; returns how many that were.

        Costs what stays, not what goes. ``rids`` are the replication ids of what is spared, as far as they are known:
        no message is read then (``a_purge_reads_what_it_spares``).
        """
        tally = self._tallies.get(queue)
        if tally is None:
            return 0
        stay = self._staying(queue, place, spared, rids)
        recent = {each: entry for each in stay if (entry := self.recent(queue, each)) is not None}
        self.drop_queue(queue)
        self._shown.drop(queue, Kept(each for each in stay.items() if each[0] not in recent))
        left = self._tallies[queue] = Tally(mark=tally.mark)
        for each, rid in sorted(stay.items()):
            entry = recent.get(each)
            if entry is None:
                left.put(each, rid)
            else:
                self.insert(queue, each, entry.rid, entry.message)
        return tally.count - len(stay)

    def insert(self, queue: int, place: int, rid: int, message: Message) -> bool:
        """Put a message into a queue; False if the queue is gone."""
        tally = self._tallies.get(queue)
        if tally is None:
            return False
        layer = self._fresh.get(queue)
        if layer is None:
            layer = self._begin_layer(queue)
        self._fresh_places[queue].add(place)
        before = len(layer)
        layer[place] = Entry(rid, message)
        if len(layer) == before:
            self._reused.add((queue, place))
        tally.put(place, rid)
        self.dirty_bytes += message.size + ADDITION_BYTES
        return True

    def remove(self, queue: int, place: int, rid: int) -> bool:
        """Take a message out of a queue; False if it is not there. None is read for it, however large it is."""
        tally = self._tallies.get(queue)
        if tally is None:
            return False
        layer = self._fresh.get(queue)
        if layer is None:
            layer = self._begin_layer(queue)
        entry = layer.get(place)
        if entry is not None:
            if (queue, place) in self._reused:
                layer[place] = None  # a resync put it over another message, which a lower layer may still hold
            else:
                del layer[place]
        elif place in layer or not self._holds_below(queue, place):
            return False
        else:
            layer[place] = None
        tally.take(place, rid if entry is None else entry.rid)
        self.dirty_bytes += REMOVAL_BYTES
        for reading in self._readings.get(queue, ()):
            reading.gone(place)
        return True

    def mark(self, queue: int, place: int) -> None:
        """Messages up to ``place`` may have been handed out."""
        tally = self._tallies.get(queue)
        if tally is not None and place > tally.mark:
            tally.mark = place

    def overwrite_mark(self, queue: int, place: int) -> None:
        """A primary's snapshot says up to where messages may have been handed out, whatever was known here."""
        tally = self._tallies.get(queue)
        if tally is not None:
            tally.mark = place

    def get(self, queue: int, place: int) -> Entry | None:
        """One entry, or None if it is gone."""
        if queue not in self._tallies:
            return None
        layer = self._fresh.get(queue)
        if layer is not None and place in layer:
            return layer[place]
        return self._below(queue, place)

    def recent(self, queue: int, place: int) -> Entry | None:
        """The entry, if it came after what the base shows: then it is in memory. None: it is to be read, or gone."""
        layer = self._fresh.get(queue)
        if layer is not None and place in layer:
            return layer[place]
        return self._frozen_layer(queue).get(place)

    def begin_reading(self, queue: int, after: int) -> Reading:
        """A page of a queue is about to be read from the base, by another thread. Ends with ``end_reading``."""
        layers, places = [self._fresh.get(queue, {})], [self._fresh_places]
        if not self._shown.dropped(queue):
            layers.append(self._frozen.get(queue, {}))
            places.append(self._frozen_places)
        reading = Reading(queue, after, layers, [each[queue] for each in places if queue in each])
        reading.kept = self._shown.kept(queue)
        self._readings.setdefault(queue, []).append(reading)
        return reading

    def end_reading(self, reading: Reading) -> None:
        """It has been read, or nobody waits for it any more."""
        others = [each for each in self._readings.pop(reading.queue) if each is not reading]
        if others:
            self._readings[reading.queue] = others

    def page(self, queue: int, after: int, limit: int) -> list[tuple[int, Entry]]:
        """Up to ``limit`` entries above ``after``, in order of their places.

        Costs what it returns, however much has changed since the last checkpoint.
        """
        base = self._shown
        return list(islice(self._walk(queue, after, lambda last: base.page(queue, last, limit), _same, END), limit))

    def ids_page(self, queue: int, after: int, limit: int) -> Ids:
        """Up to ``limit`` (place, replication id) above ``after``, in order. No message is read for it.

        There may be fewer, and more to come: at most ``IDS_BYTES`` of messages are looked at, or one
        (``one_joiner_topples_every_primary``), and ``IDS_PASSED`` passed over (``one_page_passes_over_what_has_gone``).
        """
        hidden = ChainMap(self._fresh.get(queue, {}), self._frozen_layer(queue))
        there = self._shown.ids_page(queue, after, limit, hidden)
        last = min(there.through, *(each.reach(after, IDS_PASSED) for each in self._recent_places(queue)), END)
        walk = self._walk(queue, after, lambda at: there.entries if at == after else [], _rid, last)
        found = list(islice(takewhile(lambda each: each[0] <= last, walk), limit + 1))
        return Ids(found[:limit], found[limit - 1][0] if len(found) > limit else last)

    def ids(self, queue: int) -> list[tuple[int, int]]:
        """All (place, replication id) of a queue in order."""
        found = self._shown.ids(queue)
        for layer in (self._frozen_layer(queue), self._fresh.get(queue, {})):
            for place, entry in layer.items():
                if entry is None:
                    found.pop(place, None)
                else:
                    found[place] = entry.rid
        return sorted(found.items())

    def known_queues(self) -> set[int]:
        """The numbers of all queues that exist."""
        return set(self._tallies)

    def branches(self) -> list[PreparedBranch]:
        """Every branch that is prepared and not decided, the oldest first."""
        return self.table.branches()

    def prepared_branch(self, xid: Xid) -> PreparedBranch | None:
        """The same for one branch."""
        buffer = self.table.in_doubt(xid)
        return None if buffer is None else described(buffer)

    def heuristic_branches(self) -> list[Xid]:
        """The branches that were decided heuristically and are not forgotten."""
        return list(self.table.outcomes.heuristics)

    def outcome(self, xid: Xid, since: int = 0) -> Outcome:
        """What is known of a branch."""
        return self.table.outcome(xid, since)

    def outcome_of_token(self, token: bytes, since: int = 0) -> Outcome:
        """What is known of a transaction that is no branch."""
        return self.table.outcome(token, since)

    def global_decision(self, format_id: int, gtrid: bytes) -> Outcome:
        """The global decision, whatever became of the branches."""
        return self.table.global_decision(Global(format_id, gtrid))

    def global_outcome(self, format_id: int, gtrid: bytes) -> Outcome:
        """What is known of a global decision."""
        return self.table.global_outcome(Global(format_id, gtrid))

    def branches_of(self, format_id: int, gtrid: bytes) -> dict[Xid, Outcome]:
        """Every branch of a global transaction."""
        return self.table.branches_of(Global(format_id, gtrid))

    def _begin_layer(self, queue: int) -> dict[int, Entry | None]:
        """The first change of a queue since the last checkpoint."""
        layer = self._fresh[queue] = {}
        self._fresh_places[queue] = Places()
        return layer

    def _staying(self, queue: int, place: int, spared: Sequence[int], rids: Mapping[int, int]) -> dict[int, int]:
        """What is in a queue above ``place``, and of what is spared: places, with their replication ids."""
        stay: dict[int, int] = {}
        for each in spared:
            if each <= place and self._stands(queue, each):
                rid = rids.get(each)
                stay[each] = self.ids_page(queue, each - 1, 1).entries[0][1] if rid is None else rid
        page = Ids([], place)
        while page.more:
            page = self.ids_page(queue, page.through, PAGE)
            stay.update(page.entries)
        return stay

    def _stands(self, queue: int, place: int) -> bool:
        """Whether a message stands there."""
        layer = self._fresh.get(queue, {})
        return layer[place] is not None if place in layer else self._holds_below(queue, place)

    def _holds_below(self, queue: int, place: int) -> bool:
        layer = self._frozen_layer(queue)
        if place in layer:
            return layer[place] is not None
        return self._shown.holds(queue, place)

    def _below(self, queue: int, place: int) -> Entry | None:
        layer = self._frozen_layer(queue)
        if place in layer:
            return layer[place]
        return self._shown.get(queue, place)

    def _frozen_layer(self, queue: int) -> dict[int, Entry | None]:
        """What the checkpoint on its way holds of a queue, unless the queue was dropped since."""
        return {} if self._shown.dropped(queue) else self._frozen.get(queue, {})

    def _walk(
        self, queue: int, after: int, below: Callable[[int], Batch[Shown]], shown: Callable[[Entry], Shown], last: int
    ) -> Iterator[tuple[int, Shown]]:
        """What is in a queue above ``after``, in the layers up to ``last``; ``below`` reads the base."""
        if queue not in self._tallies:
            return
        frozen, fresh = self._frozen_layer(queue), self._fresh.get(queue, {})
        recent = ((place, shown(entry)) for place, entry in self._recent(queue, after, last))
        first = next(recent, None)
        while batch := below(after):
            for place, value in batch:
                while first is not None and first[0] < place:
                    yield first
                    first = next(recent, None)
                if place not in fresh and place not in frozen:
                    yield place, value
            after = batch[-1][0]
        if first is not None:
            yield first
            yield from recent

    def _recent(self, queue: int, after: int, last: int) -> Iterator[tuple[int, Entry]]:
        """What the layers over the base hold above ``after`` and up to ``last``, in order."""
        frozen, fresh = self._frozen_layer(queue), self._fresh.get(queue, {})
        before = after
        for place in merge(*[places.above(after) for places in self._recent_places(queue)]):
            if place > last:
                return
            entry = fresh[place] if place in fresh else frozen.get(place)
            if entry is not None and place != before:
                yield place, entry
            before = place

    def _recent_places(self, queue: int) -> list[Places]:
        layers = [self._fresh_places] if self._shown.dropped(queue) else [self._frozen_places, self._fresh_places]
        return [places[queue] for places in layers if queue in places]

    def freeze(self) -> tuple[Changes, list[Dropped]]:
        """Begin a checkpoint: (changes, dropped queues) since the last. Costs nothing; ends with ``thaw``."""
        assert not self._frozen, "a checkpoint is being written already"
        self._frozen, self._fresh = self._fresh, {}
        self._frozen_places, self._fresh_places = self._fresh_places, {}
        self._frozen_bytes, self.dirty_bytes = self.dirty_bytes, 0
        return self._frozen, self._shown.freeze()

    def thaw(self) -> None:
        """The checkpoint has been written: the base shows it now."""
        self._frozen = {}
        self._frozen_places = {}
        self._shown.thaw()
        self._frozen_bytes = 0

    def meta(self, history: list[Position], resyncing: bool = False) -> Meta:
        """A copy of everything that a checkpoint keeps beside messages and transactions."""
        configuration = self._configuration.copy()
        summaries = {queue: _summary(tally) for queue, tally in self._tallies.items()}
        outcomes = self.table.outcomes.meta
        return Meta(self.applied, list(history), configuration, summaries, resyncing, outcomes)


def _summary(tally: Tally) -> QueueSummary:
    return QueueSummary(tally.count, tally.digest, tally.mark)


def _same(entry: Entry) -> Entry:
    return entry


def _rid(entry: Entry) -> int:
    return entry.rid
