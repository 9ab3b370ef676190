"""A broker in another process, as this node's core sees it: everything that it is told becomes a message to it.

Pure: messages go to ``say``, or several that are encoded to ``say_encoded``; what the broker asks comes in by ``take``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from broker_plugin.host.from_broker import Attach, FromBroker
from broker_plugin.host.from_node import (
    Activated,
    BranchEnded,
    BranchPrepared,
    Deactivated,
    FromNode,
    LeaseUntil,
    MessageEnqueued,
    MessagesArriving,
    MessagesRemoved,
    QueuePurged,
    StepConfigured,
    WatermarkRaised,
)
from broker_plugin.host.requests import Activation, Say
from broker_plugin.host.wire import framed
from txobserver.configuration import Configured
from txobserver.events import Configure, Message, Removal
from txobserver.outcomes import PreparedBranch
from txobserver.ports.ledger import ClientsServed, Content, Ledger


class RemoteBroker:
    """Implements ``txobserver.ports.ledger.Host``.

    Many methods: one for each thing that a host is told, and for each thing that a broker says.
    """

    def __init__(self, say: Say, say_encoded: Callable[[bytes], None]) -> None:
        self._out = say
        self._out_encoded = say_encoded
        self._kept: bytearray | None = None
        self._activations = 0
        self._activation: Activation | None = None
        self._ledger: Ledger | None = None
        self._content: Content | None = None
        self._lease = 0.0

    def take(self, ask: FromBroker) -> None:
        """A request of the broker. One of an earlier activation is dropped. Raises ValueError for what none may ask."""
        if isinstance(ask, Attach):
            raise ValueError("it attaches a second time")
        if ask.activation > self._activations:
            raise ValueError(f"it names activation {ask.activation}, and {self._activations} is the last")
        if self._activation is not None and ask.activation == self._activation.number:
            self._activation.take(ask)

    def lease(self, until: float) -> None:
        """The lease holds until then, in seconds of the node's clock; 0: this node is no primary."""
        if until != self._lease:
            self._lease = until
            self._out(LeaseUntil(until))

    def _say(self, message: FromNode) -> None:
        """To the broker; while a transaction is being told in several turns, when all of it can be told."""
        if self._kept is None:
            self._out(message)
        else:
            self._kept += framed(message)

    # -- operators, at this node

    @property
    def active(self) -> bool:
        """Whether this node is the active primary."""
        return self._activation is not None

    @property
    def ledger(self) -> Ledger:
        """The present one. Only while ``active``."""
        assert self._ledger is not None
        return self._ledger

    @property
    def content(self) -> Content:
        """The present one. Only while ``active``."""
        assert self._content is not None
        return self._content

    # -- Host

    def on_active(self, ledger: Ledger, content: Content) -> None:
        """This node is the active primary."""
        self._activations += 1
        self._ledger, self._content = ledger, content
        self._activation = Activation(self._activations, ledger, content, self._say)
        summaries = {number: content.summary(number) for number in content.configuration.numbers()}
        self._say(
            Activated(self._activations, content.applied.sequence, content.configuration, summaries, content.branches())
        )

    def on_draining(self) -> bool:
        """The broker of another process is not asked what it has begun: it is closed at once."""
        return False

    @property
    def served(self) -> ClientsServed | None:
        """Not known here."""
        return None

    def on_inactive(self, reason: str) -> None:
        """No longer."""
        if self._activation is not None:
            self._activation.end()
        self._activation = self._ledger = self._content = None
        self._kept = None
        self.lease(0.0)
        self._say(Deactivated(self._activations, reason))

    def on_arriving(self, queue: int, messages: int) -> None:
        """The broker cannot answer in time: it has granted credit ahead, or asks for a watermark later."""
        self._say(MessagesArriving(queue, messages))

    def on_configured(self, step: Configure, done: Configured) -> None:
        """A configuration step has been applied."""
        if self._activation is not None:
            self._activation.configured()
        self._say(StepConfigured(step, done.deleted, list(done.lapsed), str(done.refusal or "")))

    def on_step_begins(self) -> None:
        """The broker gets the step, and what comes meanwhile, when it is whole: it knows of no steps in parts."""
        self._kept = bytearray()

    def on_step_ends(self) -> None:
        """Now: in one piece, which was encoded while the step was told."""
        kept, self._kept = self._kept, None
        if kept:
            self._out_encoded(bytes(kept))

    def on_enqueued(self, queue: int, offset: int, rid: int, message: Message) -> None:
        """A message is now in the queue."""
        self._say(MessageEnqueued(queue, offset, rid, message))

    def on_removed(self, queue: int, entries: Sequence[tuple[int, int]], reason: Removal) -> None:
        """Messages have left the queue."""
        self._say(MessagesRemoved(queue, list(entries), int(reason)))

    def on_purged(self, queue: int, offset: int, spared: Sequence[int], count: int) -> None:
        """Messages have left the queue."""
        self._say(QueuePurged(queue, offset, list(spared), count))

    def on_watermark(self, queue: int, offset: int) -> None:
        """Messages up to ``offset`` may be handed out."""
        self._say(WatermarkRaised(queue, offset))

    def on_branch_prepared(self, branch: PreparedBranch) -> None:
        """A branch has been prepared everywhere."""
        self._say(BranchPrepared(branch))

    def on_branch_ended(self, branch: PreparedBranch, committed: bool) -> None:
        """A prepared branch has ended."""
        self._say(BranchEnded(branch, committed))
