"""The ledger of one activation, for a broker in another process: each call is a message, each answer a callback."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count

from broker_plugin.host.from_broker import (
    AskBranch,
    AskConfigure,
    AskGlobal,
    AskMessages,
    AskPage,
    AskPublish,
    AskPurge,
    AskSettle,
    AskToken,
    AskWatermark,
    BeginWork,
    DecideBranch,
    DecideGlobal,
    DequeueWork,
    EndWork,
    EnqueueWork,
    ForgetBranch,
    ForgetGlobalDecision,
    FromBroker,
    GrantCredit,
    NameWork,
    WorkEnd,
)
from broker_plugin.host.from_node import Answer, OutcomeTold, PageRead
from broker_plugin.host.wire import framed
from txobserver.configuration import Refusal
from txobserver.events import Configure, Message, Removal
from txobserver.outcomes import BranchOutcome
from txobserver.ports.ledger import Done, Found
from txobserver.ports.store import Above, Asked, Entry
from txobserver.xid import Xid

Told = Callable[[BranchOutcome], None]
"""Called with what is known of a branch or a transaction"""
ToldGlobal = Callable[[BranchOutcome, BranchOutcome], None]
"""Called with what became of the branches of a global transaction, and with its decision"""
_Then = Callable[[Answer | PageRead | OutcomeTold], None]


class Questions:
    """What has been asked in one activation, and is not answered yet; ``numbers`` gives each a number of its own."""

    def __init__(self, activation: int, send: Callable[[bytes], None]) -> None:
        self.activation = activation
        self.numbers = count(1)
        self.ended = False
        self._send = send
        self._waiting: dict[int, _Then] = {}

    def ask(self, request: FromBroker) -> None:
        """Send it."""
        if not self.ended:
            self._send(framed(request))

    def wait(self, then: _Then) -> int:
        """The number of a request whose answer goes to ``then``."""
        number = next(self.numbers)
        if not self.ended:
            self._waiting[number] = then
        return number

    def answered_by(self, done: Done) -> int:
        """The number of a request whose answer is that it was done, or why not."""

        def came(answer: Answer | PageRead | OutcomeTold) -> None:
            assert isinstance(answer, Answer)
            done(Refusal(answer.error) if answer.refused else answer.error or None)

        return self.wait(came)

    def answered(self, answer: Answer | PageRead | OutcomeTold) -> None:
        """The node has answered."""
        then = self._waiting.pop(answer.request, None)
        if then is not None:
            then(answer)

    def end(self) -> None:
        """The activation is over: nothing is asked, and nothing called back, any more."""
        self.ended = True
        self._waiting.clear()


class RemoteLedger:
    """What the broker may ask while its node is the active primary.

    No ``done`` is called once the activation has ended: what is outstanding then is unknown.
    """

    def __init__(self, questions: Questions, lease: Callable[[], float]) -> None:
        self._questions = questions
        self._activation = questions.activation
        self._ask = questions.ask
        self._answered_by = questions.answered_by
        self._wait = questions.wait
        self._lease = lease

    @property
    def lease_until(self) -> float:
        """Until then (``lease_clock``) the broker may write to its clients. It looks before each write: when that is
        over it writes nothing, and closes them, since another node may be primary."""
        return 0.0 if self._questions.ended else self._lease()

    # -- outside transactions

    def configure(self, step: Configure, done: Done) -> None:
        """A step of durable configuration. ``done`` is told a ``Refusal`` if what it depends on was not so."""
        self._ask(AskConfigure(self._activation, self._answered_by(done), step))

    def publish(self, queues: Sequence[int], message: Message, done: Done | None) -> None:
        """A message outside transactions. ``done(None)`` is a publisher confirm."""
        self._ask(AskPublish(self._activation, self._answered_by(done) if done else 0, list(queues), message))

    def settle(self, queue: int, entries: Sequence[tuple[int, int]], reason: Removal) -> None:
        """Messages (offset, replication id) leave the queue, each once. Told by ``on_removed``."""
        self._ask(AskSettle(self._activation, 0, queue, list(entries), int(reason)))

    def purge(self, queue: int, offset: int, spared: Sequence[tuple[int, int]], done: Done) -> None:
        """Everything up to ``offset`` but ``spared`` leaves the queue. Nothing is handed out until it is answered."""
        self._ask(AskPurge(self._activation, self._answered_by(done), queue, offset, list(spared)))

    def raise_watermark(self, queue: int, offset: int) -> None:
        """Ask for leave to hand out messages up to ``offset``. Told by ``on_watermark``."""
        self._ask(AskWatermark(self._activation, 0, queue, offset))

    def grant(self, queue: int, messages: int, announced: int) -> None:
        """Credit: consumers could take so many messages behind the first ``announced`` of those that ``on_arriving``
        has told of in this activation, and all of these. They can be handed out as soon as they are told. Each grant
        takes the place of the one before; what has arrived behind ``announced`` meanwhile has used its part."""
        self._ask(GrantCredit(self._activation, 0, queue, messages, announced))

    def read(self, asked: Asked, then: Callable[[Found], None]) -> None:
        """Read messages of a queue.

        ``Above``: until ``Found.through`` is 0, more may stand behind these. ``At``: the beginning of those that are
        there; ask again for the rest, until nothing comes.
        """

        def came(answer: Answer | PageRead | OutcomeTold) -> None:
            assert isinstance(answer, PageRead)
            then(Found([(offset, Entry(rid, message)) for offset, rid, message in answer.entries], answer.through))

        request = self._wait(came)
        if isinstance(asked, Above):
            self._ask(AskPage(self._activation, request, asked.queue, asked.after, asked.limit, asked.max_bytes))
        else:
            self._ask(AskMessages(self._activation, request, asked.queue, list(asked.offsets), asked.max_bytes))

    # -- transactions and branches

    def begin(self, done: Done, token: bytes | None = None) -> RemoteTransaction:
        """A new transaction, which can be used at once. ``done`` is told where its token is in use."""
        work = next(self._questions.numbers)
        self._ask(BeginWork(self._activation, self._answered_by(done), work, token))
        return RemoteTransaction(self._questions, work)

    def begin_branch(self, xid: Xid, done: Done) -> RemoteBranch:
        """A new branch, which can be used at once. ``done`` is told where its xid is in use."""
        work = next(self._questions.numbers)
        self._ask(BeginWork(self._activation, self._answered_by(done), work, None, xid))
        return RemoteBranch(self._questions, work)

    def decide_branch(self, xid: Xid, commit: bool, heuristic: bool, done: Done) -> None:
        """End a prepared branch."""
        self._ask(DecideBranch(self._activation, self._answered_by(done), xid, commit, heuristic))

    def forget_branch(self, xid: Xid, done: Done) -> None:
        """Remember the outcome of a branch no more."""
        self._ask(ForgetBranch(self._activation, self._answered_by(done), xid))

    def decide_global(self, format_id: int, gtrid: bytes, commit: bool, done: Done) -> None:
        """Settle every prepared branch of this gtrid, and refuse those that prepare later."""
        self._ask(DecideGlobal(self._activation, self._answered_by(done), format_id, gtrid, commit))

    def forget_global(self, format_id: int, gtrid: bytes, done: Done) -> None:
        """Remember a global decision no more."""
        self._ask(ForgetGlobalDecision(self._activation, self._answered_by(done), format_id, gtrid))

    # -- outcomes

    def outcome(self, xid: Xid, then: Told, since: int = 0) -> None:
        """What is known of a branch. ``since``: the sequence of what had been applied when it began, or 0."""
        self._ask(AskBranch(self._activation, self._wait(_outcome(then)), xid, since))

    def outcome_of_token(self, token: bytes, then: Told, since: int = 0) -> None:
        """What is known of a transaction with a token; ACTIVE where it has not been closed."""
        self._ask(AskToken(self._activation, self._wait(_outcome(then)), token, since))

    def global_outcome(self, format_id: int, gtrid: bytes, then: ToldGlobal) -> None:
        """What is known of a global transaction."""

        def told(answer: Answer | PageRead | OutcomeTold) -> None:
            assert isinstance(answer, OutcomeTold)
            then(answer.outcome, answer.decision)

        self._ask(AskGlobal(self._activation, self._wait(told), format_id, gtrid))


def _outcome(then: Told) -> _Then:
    def told(answer: Answer | PageRead | OutcomeTold) -> None:
        assert isinstance(answer, OutcomeTold)
        then(answer.outcome)

    return told


class RemoteWork:
    """What transactions and branches have in common."""

    def __init__(self, questions: Questions, work: int) -> None:
        self._questions = questions
        self._activation = questions.activation
        self._number = work

    def enqueue(self, queues: Sequence[int], message: Message) -> None:
        """A publish inside the transaction to these durable queues."""
        self._questions.ask(EnqueueWork(self._activation, 0, self._number, list(queues), message))

    def dequeue(self, queue: int, entries: Sequence[tuple[int, int]], reason: Removal = Removal.ACKED) -> None:
        """Messages (offset, replication id) settled inside the transaction; they leave the queue at commit."""
        self._questions.ask(DequeueWork(self._activation, 0, self._number, queue, list(entries), int(reason)))

    def rollback(self, done: Done) -> None:
        """Forget everything."""
        self._end(WorkEnd.ROLLBACK, done)

    def _end(self, ending: WorkEnd, done: Done) -> None:
        request = self._questions.answered_by(done)
        self._questions.ask(EndWork(self._activation, request, self._number, ending))


class RemoteTransaction(RemoteWork):
    """One transaction."""

    def name(self, token: bytes, done: Done) -> None:
        """Remember the outcome under this token, 1 to 64 bytes; before the commit, and once."""
        request = self._questions.answered_by(done)
        self._questions.ask(NameWork(self._activation, request, self._number, token))

    def commit(self, done: Done) -> None:
        """``done`` is called when every node that counts has the decision on disk."""
        self._end(WorkEnd.COMMIT, done)


class RemoteBranch(RemoteWork):
    """One branch that has not been prepared."""

    def prepare(self, done: Done) -> None:
        """``done(None)``: prepared durably on every node that counts."""
        self._end(WorkEnd.PREPARE, done)

    def commit_one_phase(self, done: Done) -> None:
        """Prepare and decide in one go."""
        self._end(WorkEnd.COMMIT, done)
