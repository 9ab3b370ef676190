"""The ledger of one generation: what the host broker asks of the primary for its clients."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ha.primary.additions import Additions
from ha.primary.commit_point import CommitPoint
from ha.primary.readings import Readings, Then
from ha.primary.refusals import Refusals
from ha.primary.stream_decisions import StreamDecisions
from ha.primary.writer import Emit, Writer
from txobserver.batch import number_step, numbers_of
from txobserver.configuration import FEATURE_OF, UnknownStep
from txobserver.ends import END_OF_CONFIGURATION
from txobserver.events import Configure, Delivered, Message, Publish, Removal, purge_of
from txobserver.ids import LAST_CONFIG_ID, offset_of
from txobserver.observer import DtxObserver, TransactionObserver
from txobserver.ports.ledger import Done
from txobserver.ports.store import Asked
from txobserver.work_limits import OpenWork
from txobserver.xid import Xid


class ClientLedger:
    """Implements ``txobserver.ports.ledger.Ledger``. ``lacking``: the followers that do not know a feature."""

    def __init__(
        self,
        writer: Writer,
        point: CommitPoint,
        decisions: StreamDecisions,
        additions: Additions,
        refusals: Refusals,
        readings: Readings,
        emit: Emit,
        lacking: Callable[[str], list[str]],
    ) -> None:
        self._lacking = lacking
        self._readings = readings
        self._writer = writer
        self._point = point
        self._decisions = decisions
        self._additions = additions
        self._refusals = refusals
        self._emit = emit
        self._config_id = 0
        self.open_work: OpenWork = decisions.factory

    def begin_at(self, config_id: int) -> None:
        """Clients are served from here on; this was the last step of configuration."""
        self._config_id = config_id

    @property
    def last_id(self) -> int:
        """The id of the last step of configuration that has been appended."""
        return self._config_id

    def configure(self, step: Configure, done: Done) -> None:
        """A step of configuration; it gets the next id."""
        at_end, numbers = self._writer.at_end, numbers_of(step)
        if at_end or self._config_id + numbers >= LAST_CONFIG_ID:
            done(at_end or END_OF_CONFIGURATION)
            return
        if (unknown := self._unknown(step.operation)) is not None:
            done(unknown)
            return
        try:
            for _ in range(numbers):
                self._append(number_step())
            sequence = self._append(step)
        except UnknownStep as error:
            done(str(error))
            return
        self._point.wait(sequence, self._refusals.answer(self._config_id, done))

    def _append(self, step: Configure) -> int:
        """The sequence at which the step stands with the next id. Raises UnknownStep."""
        config_id = self._config_id + 1
        numbered = Configure(config_id, step.operation, step.name, step.arguments, step.terms)
        sequence = self._writer.append(numbered)
        self._config_id = config_id
        return sequence

    def _unknown(self, operation: str) -> str | None:
        """Why this operation is not written yet: some node that follows could not apply it."""
        feature = FEATURE_OF.get(operation)
        nodes = [] if feature is None else self._lacking(feature)
        return f"{operation} needs {feature} on every node: upgrade {', '.join(nodes)} first" if nodes else None

    def publish(self, queues: Sequence[int], message: Message, done: Done | None) -> None:
        """A message outside transactions."""
        if (self._decisions.below_min_ready and done is not None) or self._writer.at_end:
            if done is not None:
                done(self._decisions.refusal())
            return
        event = Publish(self._writer.ids.next(), tuple(queues), message)
        sequence = self._writer.append(event)
        self._additions.add(event.queues, offset_of(sequence))
        if done is not None:
            self._point.wait(sequence, done)

    def settle(self, queue: int, entries: Sequence[tuple[int, int]], reason: Removal) -> None:
        """Messages leave a queue outside transactions."""
        self._writer.settle(queue, entries, reason)

    def purge(self, queue: int, offset: int, spared: Sequence[tuple[int, int]], done: Done) -> None:
        """Everything up to ``offset`` but ``spared`` (offset, replication id) leaves the queue."""
        self._point.wait(self._writer.append(purge_of(queue, offset, spared)), done)

    def raise_watermark(self, queue: int, offset: int) -> None:
        """Ask for leave to hand out messages up to ``offset``."""
        self._writer.append(Delivered(queue, offset))

    def grant(self, queue: int, messages: int, announced: int) -> None:
        """Credit for what is still to come into the queue. Raises ValueError for what cannot be."""
        self._additions.grant(queue, messages, announced)

    def read(self, asked: Asked, then: Then) -> None:
        """Messages from the store, in a thread of its own."""
        self._emit(self._readings.begin(asked, then))
        self._writer.wake()

    def begin(self, token: bytes | None = None, client: OpenWork | None = None) -> TransactionObserver:
        """The observer of a new transaction. Raises NameInUse, ValueError for its token."""
        return self._decisions.factory.begin(token, client)

    def is_open(self, token: bytes) -> bool:
        """Whether a transaction with this token may still be committed."""
        return self._decisions.factory.is_open(token)

    # -- branches

    def begin_branch(self, xid: Xid, client: OpenWork | None = None) -> DtxObserver:
        """The observer of a new branch. Raises NameInUse."""
        return self._decisions.branches.begin(xid, client)

    def decide_branch(self, xid: Xid, commit: bool, heuristic: bool, done: Done) -> None:
        """End a branch that is in doubt."""
        self._decisions.branches.decide(xid, commit, heuristic, done)

    def forget_branch(self, xid: Xid, done: Done) -> None:
        """Remember the outcome of a branch no more."""
        self._decisions.branches.forget(xid, done)

    def decide_global(self, format_id: int, gtrid: bytes, commit: bool, done: Done) -> None:
        """Decide a global transaction, and its branches that are in doubt."""
        self._decisions.branches.decide_global(format_id, gtrid, commit, done)

    def forget_global(self, format_id: int, gtrid: bytes, done: Done) -> None:
        """Remember a global decision no more."""
        self._decisions.branches.forget_global(format_id, gtrid, done)
