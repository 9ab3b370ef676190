"""What the applied prefix of the stream leads to: durable queues, configuration, transactions that have a name.

Promise: a reader sees exactly what the applied prefix of the stream leads to, whether or not a checkpoint is being
written at the moment. Each part answers for itself: ``Layers`` holds what changed since the last checkpoint, ``Queues``
changes it, ``Messages`` reads it; here stands what concerns several of them at once.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final

from txobserver.access import ACCESS
from txobserver.batch import is_load, parts_of, shown_parts
from txobserver.calls import CALLS
from txobserver.configuration import Configured
from txobserver.definitions import Trial
from txobserver.digest import Tally
from txobserver.events import Configure, Terms
from txobserver.ids import Position
from txobserver.leftovers import Leftovers
from txobserver.outcomes import Remembered
from txobserver.ports.store import Base, Changes, Dropped, Ids, Meta
from txobserver.rules import VHOST_GONE
from txobserver.state.layers import Layers
from txobserver.state.messages import Messages
from txobserver.state.queues import Queues
from txobserver.state.transaction_table import TransactionTable


class Contents:
    """``base`` must show the state that ``meta`` belongs to. ``applied``: the position of the last applied event.
    ``leftovers``: what nothing needs any more, to be let go of in the turns that come."""

    def __init__(self, base: Base, meta: Meta, remembered: Iterable[Remembered] = ()) -> None:
        tallies = {queue: Tally(each.count, each.digest, each.watermark) for queue, each in meta.summaries.items()}
        self.applied = meta.applied
        self.configuration = meta.configuration.copy()
        self.configuration.bindings.index()
        self.calls = meta.calls.copy()
        self.access = meta.access.copy()
        self.table: Final = TransactionTable(meta.outcomes, remembered)
        self.leftovers: Final = Leftovers()
        self.layers: Final = Layers(base, self.leftovers)
        self.messages: Final = Messages(self.layers, tallies)
        self.queues: Final = Queues(self.layers, self.messages, tallies)

    @property
    def dirty_bytes(self) -> int:
        """Bytes of change since the last checkpoint began."""
        return self.layers.dirty_bytes

    @property
    def held_bytes(self) -> int:
        """Bytes of change that are in memory only, those of a checkpoint that is being written among them."""
        return self.layers.held_bytes

    def configure(self, step: Configure) -> Configured:
        """Carry out a step of configuration, and what it means for queues. Raises ValueError, StoreDamaged."""
        done = self.configuration.apply(step, self.holds)
        if step.operation in CALLS:
            self.calls.apply(step, self.applied)
            return done
        if step.operation in ACCESS and is_load(step):
            return self._load(step)
        if step.operation in ACCESS:
            vacant = step.operation == VHOST_GONE and self.configuration.is_vacant(step.name)
            return Configured(refusal=self.access.apply(step, vacant))
        if done.deleted is not None:
            self.queues.drop(done.deleted)
        if self.configuration.queue_number(step.name) == step.config_id:
            self.queues.add(step.config_id)
        return done

    def _load(self, step: Configure) -> Configured:
        """All parts of the step, or none."""
        parts = parts_of(step)
        trial = Trial(self.configuration, self.access)
        trial.carry_out(parts)
        if trial.failed is not None:
            self.access.loaded(step, self.access.users, self.access.rules, trial.failed.refusal, ("", ""))
            return Configured(refusal=trial.failed.refusal)
        shown = shown_parts(trial.replaced), shown_parts(parts)
        self.access.loaded(step, trial.users, trial.rules, None, shown)
        added = trial.configuration.numbers() - self.configuration.numbers()
        self.configuration = trial.configuration
        for number in sorted(added):
            self.queues.add(number)
        return Configured(parts=tuple(parts))

    def holds(self, queue: int, terms: Terms) -> bool:
        """Whether a queue holds a message that is neither spared by these terms nor locked by a prepared branch.

        Costs what is spared by its offset and what stands behind ``through``, however many messages there are, and
        reads none. Raises StoreDamaged.
        """
        locked = self.table.locked(queue)
        if terms.through is not None:
            return self._holds_behind(queue, terms.through, locked.union(terms.spared))
        outside = locked.union(terms.spared)
        count = self.queues.summary(queue).count
        return count > len(outside) or count > sum(self.layers.holds(queue, offset) for offset in outside)

    def _holds_behind(self, queue: int, through: int, outside: Collection[int]) -> bool:
        page = Ids([], through)
        while page.more:
            page = self.messages.ids_page(queue, page.through, len(outside) + 1)
            if any(offset not in outside for offset, _ in page.entries):
                return True
        return False

    def freeze(self) -> tuple[Changes, list[Dropped]]:
        """Begin a checkpoint: (changes, dropped queues) since the last. Costs nothing; ends with ``thaw``."""
        return self.layers.freeze()

    def thaw(self) -> None:
        """The checkpoint has been written: the base shows it now."""
        self.layers.thaw()

    def meta(self, history: list[Position], resyncing: bool = False) -> Meta:
        """A copy of everything that a checkpoint keeps beside messages and transactions."""
        configuration, summaries = self.configuration.copy(), self.queues.summaries()
        outcomes = self.table.outcomes.meta
        calls, access = self.calls.copy(), self.access.copy()
        return Meta(self.applied, list(history), configuration, summaries, resyncing, outcomes, calls, access)
