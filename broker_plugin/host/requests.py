"""Carries out what a broker in another process asks: one activation's requests, given to its ledger in their order.

Pure: what is to be sent goes to ``say``. What a broker must not ask (a transaction that it has not begun, a queue that
was never declared) is a ValueError, after which nothing more may be taken from that broker.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

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
from broker_plugin.host.from_node import Answer, FromNode, OutcomeTold, PageRead
from txobserver.configuration import Refusal
from txobserver.events import Removal
from txobserver.message_size import size_of
from txobserver.outcomes import BranchOutcome
from txobserver.ports.ledger import BranchObserver, Content, Done, Found, Ledger, NameInUse, Observer, Work
from txobserver.ports.store import Above, At, Entry
from txobserver.xid import Global

Say = Callable[[FromNode], None]
NOT_BEGUN = "this transaction was not begun, or its begin was refused"


class Activation:
    """What the broker asks while this node is the active primary. ``number``: which time that is, from 1 on.

    Many methods: one for each kind of request. Nothing is said once it has ended (``end``): a ledger that is used no
    more calls nothing back.
    """

    def __init__(self, number: int, ledger: Ledger, content: Content, say: Say) -> None:
        self.number = number
        self._ledger = ledger
        self._content = content
        self._say = say
        self._there = content.configuration.numbers()
        self._transactions: dict[int, Observer] = {}
        self._branches: dict[int, BranchObserver] = {}
        self._ended = False
        self._carry_out: dict[type[FromBroker], Callable[..., None]] = {
            AskConfigure: lambda ask: ledger.configure(ask.step, self._done(ask.request)),
            AskPublish: self._publish,
            AskSettle: self._settle,
            AskPurge: self._purge,
            AskWatermark: lambda ask: ledger.raise_watermark(self._queue(ask.queue), ask.offset),
            GrantCredit: lambda ask: ledger.grant(self._queue(ask.queue), ask.messages, ask.announced),
            AskPage: self._page,
            AskMessages: self._messages,
            BeginWork: self._begin,
            NameWork: self._name,
            EnqueueWork: self._enqueue,
            DequeueWork: self._dequeue,
            EndWork: self._end_work,
            DecideBranch: self._decide,
            ForgetBranch: lambda ask: ledger.forget_branch(ask.xid, self._done(ask.request)),
            DecideGlobal: self._decide_global,
            ForgetGlobalDecision: lambda ask: ledger.forget_global(ask.format_id, ask.gtrid, self._done(ask.request)),
            AskBranch: lambda ask: self._tell(ask.request, content.outcome(ask.xid, ask.since)),
            AskToken: self._token,
            AskGlobal: self._global,
        }

    def take(self, ask: FromBroker) -> None:
        """A request of this activation. Raises ValueError for one that no broker may make."""
        carry_out = self._carry_out.get(type(ask))
        if carry_out is None:
            raise ValueError("it attaches a second time")
        carry_out(ask)

    def end(self) -> None:
        """This node is not the active primary any more."""
        self._ended = True
        self._transactions.clear()
        self._branches.clear()

    def configured(self) -> None:
        """A step of configuration has been applied."""
        self._there = self._content.configuration.numbers()

    # -- answers

    def _done(self, request: int) -> Done:
        if not request:
            raise ValueError("it asks for something that has an answer, and names no request")
        return partial(self._answer, request)

    def _answer(self, request: int, error: str | None) -> None:
        if not self._ended:
            self._say(Answer(request, error or "", isinstance(error, Refusal), self._content.applied.sequence))

    def _tell(self, request: int, outcome: BranchOutcome, decision: BranchOutcome = BranchOutcome.UNKNOWN) -> None:
        self._say(OutcomeTold(request, outcome, decision))

    # -- outside transactions

    def _publish(self, ask: AskPublish) -> None:
        done = self._done(ask.request) if ask.request else None
        queues = self._those_there(ask.queues)
        if queues:
            self._ledger.publish(queues, ask.message, done)
        elif done is not None:
            done(None)  # as for a message that no queue is bound for

    def _settle(self, ask: AskSettle) -> None:
        self._ledger.settle(self._queue(ask.queue), ask.entries, Removal(ask.reason))

    def _purge(self, ask: AskPurge) -> None:
        self._ledger.purge(self._queue(ask.queue), ask.offset, ask.spared, self._done(ask.request))

    def _page(self, ask: AskPage) -> None:
        asked = Above(self._queue(ask.queue), ask.after, ask.limit, ask.max_bytes)
        self._ledger.read(asked, partial(self._read, ask.request))

    def _messages(self, ask: AskMessages) -> None:
        self._run(ask.request, self._queue(ask.queue), sorted(ask.offsets), ask.max_bytes)

    def _run(self, request: int, queue: int, offsets: Sequence[int], max_bytes: int) -> None:
        """The first run of these that is in memory, or that is in the store; where nothing of it is there any more, the
        next one. So what is answered is the beginning of what is there, and an empty answer says that nothing is."""
        recent = [self._content.recent(queue, offset) for offset in offsets]
        first = bool(recent and recent[0])
        length = next((at for at, entry in enumerate(recent) if bool(entry) != first), len(recent))
        run, rest = offsets[:length], offsets[length:]
        if first:
            entries = [(offset, entry) for offset, entry in zip(run, recent, strict=False) if entry is not None]
            self._read(request, Found(_beginning(entries, max_bytes), 0))
            return

        def came(found: Found) -> None:
            entries = list(found.entries)
            if entries or not rest or self._ended:
                self._read(request, Found(entries, 0))
            else:
                self._run(request, queue, rest, max_bytes)

        self._ledger.read(At(queue, tuple(run), max_bytes), came)

    def _read(self, request: int, found: Found) -> None:
        entries = [(offset, entry.rid, entry.message) for offset, entry in found.entries]
        if not self._ended:
            self._say(PageRead(request, entries, found.through))

    # -- transactions and branches

    def _begin(self, ask: BeginWork) -> None:
        done = self._done(ask.request)
        if self._work(ask.work) is not None:
            raise ValueError(f"it begins transaction {ask.work} twice")
        try:
            if ask.xid is not None:
                self._branches[ask.work] = self._ledger.begin_branch(ask.xid)
            else:
                self._transactions[ask.work] = self._ledger.begin(ask.token)
        except NameInUse as error:
            done(str(error))
            return
        done(None)

    def _work(self, number: int) -> Work | None:
        """What has been begun by this number, and not ended. Its begin may have been refused, too."""
        return self._transactions.get(number) or self._branches.get(number)

    def _name(self, ask: NameWork) -> None:
        done, transaction = self._done(ask.request), self._transactions.get(ask.work)
        if transaction is None:
            done(NOT_BEGUN)
            return
        try:
            transaction.name(ask.token)
        except NameInUse as error:
            done(str(error))
            return
        done(None)

    def _enqueue(self, ask: EnqueueWork) -> None:
        work, queues = self._work(ask.work), self._those_there(ask.queues)
        if work is not None and queues:
            work.enqueue(queues, ask.message)

    def _dequeue(self, ask: DequeueWork) -> None:
        work = self._work(ask.work)
        if work is not None:
            work.dequeue(self._queue(ask.queue), ask.entries, Removal(ask.reason))

    def _end_work(self, ask: EndWork) -> None:
        done = self._done(ask.request)
        if (transaction := self._transactions.pop(ask.work, None)) is not None:
            _end_transaction(transaction, ask.ending, done)
        elif (branch := self._branches.pop(ask.work, None)) is not None:
            _end_branch(branch, ask.ending, done)
        else:
            done(NOT_BEGUN)

    def _decide(self, ask: DecideBranch) -> None:
        self._ledger.decide_branch(ask.xid, ask.commit, ask.heuristic, self._done(ask.request))

    def _decide_global(self, ask: DecideGlobal) -> None:
        self._ledger.decide_global(ask.format_id, ask.gtrid, ask.commit, self._done(ask.request))

    def _token(self, ask: AskToken) -> None:
        if self._ledger.is_open(ask.token):
            self._tell(ask.request, BranchOutcome.ACTIVE)
        else:
            self._tell(ask.request, self._content.outcome_of_token(ask.token, ask.since))

    def _global(self, ask: AskGlobal) -> None:
        which = Global(ask.format_id, ask.gtrid)
        outcome = self._content.global_outcome(*which)
        self._tell(ask.request, outcome, self._content.global_decision(*which))

    # -- queues

    def _queue(self, number: int) -> int:
        """A queue that there is, or was: the broker may not have heard of its end. Raises ValueError."""
        if not 1 <= number <= self._content.configuration.last_id:
            raise ValueError(f"it names queue {number}, which was never declared")
        return number

    def _those_there(self, numbers: Sequence[int]) -> list[int]:
        """Those of these queues that have not been deleted meanwhile. Raises ValueError."""
        return [number for number in dict.fromkeys(numbers) if self._queue(number) in self._there]


def _beginning(entries: list[tuple[int, Entry]], max_bytes: int) -> list[tuple[int, Entry]]:
    """So many bytes of messages, or one message."""
    size = 0
    for count, (_, entry) in enumerate(entries):
        size += size_of(entry.message)
        if count and size > max_bytes:
            return entries[:count]
    return entries


def _end_transaction(transaction: Observer, ending: WorkEnd, done: Done) -> None:
    """Raises ValueError for a prepare: only a branch has one."""
    if ending == WorkEnd.PREPARE:
        raise ValueError("it prepares a transaction that is no branch")
    if ending == WorkEnd.COMMIT:
        transaction.commit(done)
    else:
        transaction.rollback()
        done(None)


def _end_branch(branch: BranchObserver, ending: WorkEnd, done: Done) -> None:
    if ending == WorkEnd.PREPARE:
        branch.prepare(done)
    elif ending == WorkEnd.COMMIT:
        branch.commit_one_phase(done)
    else:
        branch.rollback(done)
