"""Where a broker meets the replication: what it asks (Ledger) and what it is told (Host).

A broker never changes a durable queue by itself. It asks the ledger, which makes the change an event of the
stream; when the event has passed the commit point (durable on every node that counts) the host is told, in stream
order, and only then may anything of it be seen: delivered, got, counted, confirmed (PROTOCOL, "A transaction", 4).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, Protocol

from txobserver.configuration import Configuration, Configured
from txobserver.errors import Error
from txobserver.events import Configure, Message, Removal
from txobserver.ids import Position
from txobserver.outcomes import BranchOutcome, PreparedBranch
from txobserver.ports.store import PAGE, Asked, Entry, QueueSummary
from txobserver.work_limits import OpenWork
from txobserver.xid import Xid

Done = Callable[[str | None], None]
"""Called exactly once when the outcome is known: None for done, else one sentence saying why it was refused or
rolled back. It is never called when the outcome is unknown; then ``Host.on_inactive`` closes the clients."""


class Found(NamedTuple):
    """Messages of a queue that have been read; see ``Ledger.read``."""

    entries: Iterable[tuple[int, Entry]]
    """To be gone through at once"""
    through: int
    """Everything up to this offset is among them; 0: up to the last of them, and there was no more to be read"""


class ClientsServed(NamedTuple):
    """How many ``clients`` are connected, and how many of them are ``undecided``: they wait for the outcome of
    something that has begun, or may have lost the answer to it."""

    clients: int
    undecided: int


class NameInUse(Error, ValueError):
    """Raised when a transaction with this xid or token is open, prepared, or committed or decided and remembered."""


class Work(Protocol):
    """What a client does inside a transaction or branch. Nothing of it is visible before the commit."""

    tx: int

    def enqueue(self, queues: Sequence[int], message: Message) -> None:
        """A publish inside the transaction to these durable queues."""
        ...

    def dequeue(self, queue: int, entries: Sequence[tuple[int, int]], reason: Removal = Removal.ACKED) -> None:
        """Messages (offset, replication id) settled inside the transaction; they leave the queue at commit."""
        ...


class Observer(Work, Protocol):
    """The TransactionObserver of one transaction. After commit or rollback it takes nothing more."""

    def name(self, token: bytes) -> None:
        """Remember the outcome under this token, 1 to 64 bytes; at any time before commit, and once.

        A token is free again when its transaction was rolled back. Raises NameInUse, ValueError.
        """
        ...

    def commit(self, done: Done) -> None:
        """Prepare, decide, and call ``done`` when every node that counts has the decision on disk."""
        ...

    def rollback(self) -> None:
        """Forget everything. May be answered at once."""
        ...


class BranchObserver(Work, Protocol):
    """One branch that has not been prepared. After prepare, commit or rollback it takes nothing more.

    Once prepared, the branch belongs to no session: ``Ledger.decide_branch`` and ``decide_global`` end it.
    """

    xid: Xid

    @property
    def empty(self) -> bool:
        """Whether there is nothing to prepare or to commit. Ending an empty branch leaves no trace."""
        ...

    def prepare(self, done: Done) -> None:
        """``done(None)``: prepared durably on every node that counts, and stays so until it is decided.

        A sentence: rolled back, which has passed the commit point where a prepare had been sent. An empty branch is
        answered at once, and has ended.
        """
        ...

    def commit_one_phase(self, done: Done) -> None:
        """As a commit without xid: prepare and decide in one go. The outcome is remembered under the xid."""
        ...

    def rollback(self, done: Done) -> None:
        """Forget everything. Answered at once: no prepare was sent, so it can only end in a rollback."""
        ...


class Ledger(Protocol):
    """What the broker at the active primary may ask. A refusal is told through ``done``.

    ``open_work``: what all clients have open, and the branches that are prepared.
    """

    open_work: OpenWork

    def configure(self, step: Configure, done: Done) -> None:
        """A step of durable configuration; the ledger gives the config_id. The host is told by ``on_configured``.

        ``done`` is told a ``Refusal`` if what the step depends on was not so where it was applied, and a sentence at
        once for a step that this node, or one that follows it, could not apply.
        """
        ...

    def publish(self, queues: Sequence[int], message: Message, done: Done | None) -> None:
        """A message outside transactions to one or more durable queues. ``done(None)`` is a publisher confirm."""
        ...

    def settle(self, queue: int, entries: Sequence[tuple[int, int]], reason: Removal) -> None:
        """Messages (offset, replication id) leave the queue outside transactions. The host is told by
        ``on_removed``."""
        ...

    def purge(self, queue: int, offset: int, spared: Sequence[tuple[int, int]], done: Done) -> None:
        """Everything up to ``offset`` but ``spared`` (offset, replication id) leaves the queue."""
        ...

    def raise_watermark(self, queue: int, offset: int) -> None:
        """Ask for leave to hand out messages up to ``offset``; the host is told by ``on_watermark``."""
        ...

    def grant(self, queue: int, messages: int, announced: int) -> None:
        """Credit: consumers could take so many messages behind the first ``announced`` of those that ``on_arriving``
        has told of since ``on_active``, and all of these.

        The group of events that brings messages to the queue raises its watermark over as many of them as there is
        credit, so that handing them out costs no second round; the host is told by ``on_watermark``. What has arrived
        behind the first ``announced`` meanwhile has used its part: a host that is told late never grants too much. Each
        grant takes the place of the one before; 0 ends it. It is forgotten with the queue, and when this ledger's
        activation ends; credit for a queue that does not exist is ignored. Raises ValueError for less than no message,
        and where fewer than ``announced`` have been announced.
        """
        ...

    def read(self, asked: Asked, then: Callable[[Found], None]) -> None:
        """Read messages from the store, while everything else goes on; ``then`` is called when they are there.

        What was asked for ``Above`` an offset is as the queue is then: in order, and nothing that has left it. What was
        asked for ``At`` some offsets may have left it. It is never called once the clients have been closed.
        """
        ...

    def begin(self, token: bytes | None = None, client: OpenWork | None = None) -> Observer:
        """A new transaction with its tx-queue. Costs no round trip (a refusal comes at commit).

        With a token, as ``Observer.name``. Raises NameInUse, ValueError for a token only. ``client``: counts what the
        client that begins it has open, which is limited; without one the transaction is a client of its own.
        """
        ...

    def is_open(self, token: bytes) -> bool:
        """Whether a transaction with this token has not been closed: it may have no events yet, and have some later."""
        ...

    def begin_branch(self, xid: Xid, client: OpenWork | None = None) -> BranchObserver:
        """A new branch of this client. Costs no round trip (a refusal comes at prepare or commit).

        Raises NameInUse if the xid is in use: open, prepared, committed and remembered, or decided heuristically and
        not forgotten. One that was rolled back by its coordinator, or by a failover, is free again.
        """
        ...

    def decide_branch(self, xid: Xid, commit: bool, heuristic: bool, done: Done) -> None:
        """End a prepared branch; ``heuristic``: by an operator, to be remembered until it is forgotten.

        A sentence if there is no such prepared branch, or its decision is on its way already. A decision that was taken
        does not fail; it waits.
        """
        ...

    def forget_branch(self, xid: Xid, done: Done) -> None:
        """Remember the outcome of a branch no more. A sentence if there is none."""
        ...

    def decide_global(self, format_id: int, gtrid: bytes, commit: bool, done: Done) -> None:
        """One durable record that settles every prepared branch of this gtrid, and refuses those that prepare later.

        ``done(None)`` when all that are prepared now have ended. The same decision again is answered so too; the other
        one gets a sentence.
        """
        ...

    def forget_global(self, format_id: int, gtrid: bytes, done: Done) -> None:
        """Remember a global decision no more. A sentence if there is none."""
        ...


class Content(Protocol):
    """Reading access to the durable queues as of what has been applied."""

    @property
    def configuration(self) -> Configuration:
        """The durable configuration. The host must not change it."""
        ...

    def summary(self, queue: int) -> QueueSummary:
        """Count, digest and delivery watermark of a queue; zeros for one that is not known."""
        ...

    def recent(self, queue: int, offset: int) -> Entry | None:
        """An entry that is in memory, or None: it is to be read, or gone."""
        ...

    def page(self, queue: int, after: int, limit: int) -> list[tuple[int, Entry]]:
        """Up to ``limit`` entries above ``after``, in order, those locked by prepared branches included.

        Raises StoreDamaged.
        """
        ...

    def branches(self) -> list[PreparedBranch]:
        """Every branch that is prepared and not decided, the oldest first.

        What a branch dequeues is locked: it stays in its queue, and must not be delivered, got, counted as ready or
        purged until the branch has ended.
        """
        ...

    def prepared_branch(self, xid: Xid) -> PreparedBranch | None:
        """The same for one branch; None if it is not prepared, or decided."""
        ...

    def heuristic_branches(self) -> list[Xid]:
        """The branches that were decided heuristically and are not forgotten."""
        ...

    @property
    def applied(self) -> Position:
        """The last event that has been applied."""
        ...

    def outcome(self, xid: Xid, since: int = 0) -> BranchOutcome:
        """What is known of a branch. What has not passed the commit point is PENDING.

        ``since``: the sequence of what had been applied when it began; 0, by which EXPIRED is told more often, if that
        is not known.
        """
        ...

    def outcome_of_token(self, token: bytes, since: int = 0) -> BranchOutcome:
        """What is known of a transaction that is no branch. ``since`` as above: when it got the token."""
        ...

    def global_decision(self, format_id: int, gtrid: bytes) -> BranchOutcome:
        """The global decision: PENDING, COMMITTED, ROLLED_BACK, EXPIRED or UNKNOWN."""
        ...

    def global_outcome(self, format_id: int, gtrid: bytes) -> BranchOutcome:
        """The same, but if branches of it were decided heuristically otherwise, HEURISTICALLY_COMMITTED,
        HEURISTICALLY_ROLLED_BACK or MIXED.
        """
        ...

    def branches_of(self, format_id: int, gtrid: bytes) -> dict[Xid, BranchOutcome]:
        """Every branch of a global transaction that is open, prepared, or remembered."""
        ...


class Host(Protocol):
    """What the broker is told. All calls come from the event loop, in stream order, and must not block or raise."""

    def on_active(self, ledger: Ledger, content: Content) -> None:
        """This node is the active primary: serve clients from ``content``.

        Messages at offsets up to a queue's delivery watermark are redelivered.
        """
        ...

    def on_draining(self) -> bool:
        """The role is being handed over, and ``on_inactive`` follows: begin nothing more of what clients ask, deliver
        nothing more, and let end what has begun. Returns whether this host can; one that cannot is closed at once.
        """
        ...

    @property
    def served(self) -> ClientsServed | None:
        """How its clients stand; None if that is not known here."""
        ...

    def on_inactive(self, reason: str) -> None:
        """No longer: close every client connection, answer nothing that is outstanding, forget every queue.

        A client for which nothing that has begun is undecided may be told that what was not answered was not done.
        """
        ...

    def on_arriving(self, queue: int, messages: int) -> None:
        """So many messages are on their way into the queue: the last moment to grant credit for them.

        Called exactly once for each group of events that adds messages to a queue that exists. Until ``on_enqueued``
        tells of each, they take up room with consumers that the next ones cannot have. A host that cannot answer in
        time grants credit ahead, or asks for a watermark when it is told of the messages, which costs a second round.
        """
        ...

    def on_configured(self, step: Configure, done: Configured) -> None:
        """A configuration step has been applied to ``content.configuration``, and this is what became of it."""
        ...

    def on_step_begins(self) -> None:
        """What ``on_enqueued`` and ``on_removed`` tell from here on is one step, a transaction, that takes several
        turns of the event loop: no client may see any of it before ``on_step_ends``. Nothing else is told between the
        two, but ``on_arriving``, pages that were asked for, and ``on_inactive``, which ends it.
        """
        ...

    def on_step_ends(self) -> None:
        """All of the step has been told, and may be seen."""
        ...

    def on_enqueued(self, queue: int, offset: int, rid: int, message: Message) -> None:
        """A message is now in the queue, behind all that were there."""
        ...

    def on_removed(self, queue: int, entries: Sequence[tuple[int, int]], reason: Removal) -> None:
        """Messages have left the queue."""
        ...

    def on_purged(self, queue: int, offset: int, spared: Sequence[int], count: int) -> None:
        """``count`` messages up to ``offset``, all but ``spared``, have left the queue."""
        ...

    def on_watermark(self, queue: int, offset: int) -> None:
        """Messages up to ``offset`` may be handed out from now on."""
        ...

    def on_branch_prepared(self, branch: PreparedBranch) -> None:
        """A branch has been prepared everywhere: what it dequeues is locked, also where a consumer held it."""
        ...

    def on_branch_ended(self, branch: PreparedBranch, committed: bool) -> None:
        """A prepared branch has ended. If it was rolled back, what it locked goes back to its offsets, redelivered.

        If it was committed, ``on_enqueued`` and ``on_removed`` have told the rest.
        """
        ...


def pages(content: Content, queue: int) -> Iterator[tuple[int, Entry]]:
    """Every entry of a queue in order, read page by page."""
    after = -1
    while page := content.page(queue, after, PAGE):
        yield from page
        after = page[-1][0]
