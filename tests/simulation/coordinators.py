"""Those who work in branches: coordinators that prepare and decide, across connections, and an operator who interferes.

A coordinator remembers its branches and what it has decided, as one with a log would. What a lost connection left in
doubt it asks for by xid on the next one; what the broker lists as prepared and is its own it settles.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from tests.simulation.book import FAILED, OK, OPEN, ROLLED_BACK, SENT, UNKNOWN, Attempt
from tests.simulation.client_link import ClientLink
from tests.simulation.clients import INPUT, OUTPUTS, PROPERTIES, Client
from txobserver.outcomes import BranchOutcome, XaStatus
from txobserver.xid import Global, Xid

if TYPE_CHECKING:
    from tests.simulation.cluster import Cluster

COMMITTED = (BranchOutcome.COMMITTED, BranchOutcome.HEURISTICALLY_COMMITTED)
HEURISTIC = (BranchOutcome.HEURISTICALLY_COMMITTED, BranchOutcome.HEURISTICALLY_ROLLED_BACK)


class Coordinator(Client):
    """Takes orders and publishes in branches: one or two phases, one branch or two of one global transaction."""

    kind = "coordinator"

    def __init__(self, cluster: Cluster, number: int) -> None:
        super().__init__(cluster, number)
        self._held: list[tuple[int, str]] = []
        self._attempt: Attempt | None = None
        self._pair: list[Attempt] = []
        self._waiting: list[Attempt] = []
        self._doubts: list[Attempt] = []
        self._decided: dict[Global, bool] = {}
        self._begun = 0

    def connected(self, link: ClientLink) -> None:
        link.request(link.channel.mode.select_dtx)
        link.request(lambda: link.channel.qos(self.chance.choice((2, 3, 5)), False) or link.queues.consume(INPUT))
        self._look()

    def delivered(self, tag: int, queue: str, body: str) -> None:
        self._held.append((tag, body))
        if self._attempt is None:
            self._begin()

    def disconnected(self) -> None:
        mine = [*self._pair, *self._waiting, *([self._attempt] if self._attempt else [])]
        self._doubts += [each for each in mine if each not in self._doubts]
        self._attempt, self._held, self._pair, self._waiting = None, [], [], []

    # -- one branch, from its start to its end

    def _begin(self) -> None:
        """A branch; the second of a global transaction if the first is prepared and waits for it."""
        link = self.link
        if link is None or self._attempt is not None or not self._held or len(self._pair) == 2:
            return
        self._begun += 1
        xid = Xid(1, f"{self._id}-{self._begun}".encode(), b"%d" % self._begun)
        if self._pair:
            assert self._pair[0].xid is not None
            xid = xid._replace(gtrid=self._pair[0].xid.gtrid)
        attempt = self._attempt = self.book.begin(self.name, xid=xid)
        link.request(lambda: link.channel.mode.start_branch(xid, False, False))
        self._publish(attempt, [self.chance.choice(OUTPUTS) for _ in range(self.chance.choice((1, 2, 3)))])

    def _publish(self, attempt: Attempt, queues: list[str]) -> None:
        link, xid = self.link, attempt.xid
        if link is None or xid is None or attempt is not self._attempt:
            return
        for queue in queues:
            body = self.book.publish(attempt, queue)
            link.request(lambda q=queue, b=body: link.channel.publish("", q, False, PROPERTIES, b.encode()))
        if self.chance.random() < 0.2:
            link.request(lambda: link.channel.mode.end_branch(xid, False, True))
            link.request(lambda: link.channel.mode.start_branch(xid, False, True))
        self.later(0.0, 0.02, lambda: self._end(attempt))

    def _end(self, attempt: Attempt) -> None:
        link, xid = self.link, attempt.xid
        if link is None or xid is None or attempt is not self._attempt:
            return
        taken = self._held[: self.chance.randint(1, len(self._held))]
        self._held = self._held[len(taken) :]
        attempt.consumed = [(INPUT, body) for _, body in taken]
        for tag, _ in taken:
            link.request(lambda t=tag: link.channel.ack(t, False))
        link.request(lambda: link.channel.mode.end_branch(xid, False, False))
        choice = self.chance.random()
        if self._pair:
            self._second(link, attempt)
        elif choice < 0.06:
            self._ended(attempt, ROLLED_BACK)
            self._roll_back(link, attempt)
        elif choice < 0.1:
            link.close()
        elif choice < 0.3:
            attempt.asked.add(True)
            attempt.outcome = SENT
            link.branches.status(
                partial(link.branches.operations.commit, link.channel, xid, True),
                lambda status: self._ended(attempt, OK if status is XaStatus.OK else FAILED),
                lambda status: self._tell(link, attempt, BranchOutcome.COMMITTED, status),
            )
        else:
            self._prepare(link, attempt)

    def _roll_back(self, link: ClientLink, attempt: Attempt) -> None:
        """One that is not prepared, as far as is known."""
        attempt.asked.add(False)
        link.branches.status(
            partial(link.branches.operations.rollback, link.channel, attempt.xid),
            lambda status: None,
            lambda status: self._tell(link, attempt, BranchOutcome.ROLLED_BACK, status),
        )

    def _tell(self, link: ClientLink, attempt: Attempt, asked: BranchOutcome, status: XaStatus) -> None:
        """At the broker: an answer to what was asked of a branch."""
        truth = self.cluster.truth
        if status is XaStatus.OK:
            outcome = asked
        elif status is XaStatus.ROLLED_BACK:
            outcome = BranchOutcome.ROLLED_BACK
        else:
            outcome = BranchOutcome(status)
        truth.told_of(link.process, attempt, outcome)
        if outcome in (BranchOutcome.COMMITTED, BranchOutcome.ROLLED_BACK):
            truth.answered(link.process, attempt, outcome is BranchOutcome.COMMITTED)

    def _prepare(self, link: ClientLink, attempt: Attempt) -> None:
        assert attempt.xid is not None
        link.branches.status(
            partial(link.branches.operations.prepare, link.channel, attempt.xid),
            partial(self._prepared, attempt),
            lambda status: self._tell(link, attempt, BranchOutcome.PREPARED, status),
        )

    def _prepared(self, attempt: Attempt, status: XaStatus) -> None:
        if status is not XaStatus.OK:
            self._ended(attempt, FAILED)
            return
        if self._attempt is attempt:
            self._attempt = None
        if not self._pair and self.chance.random() < 0.3:
            self._pair = [attempt]
            self.later(0.5, 0.5, lambda: self._give_up_pair(attempt))
        elif self._pair and attempt not in self._pair:
            self._pair.append(attempt)
            self.later(0.0, 0.1, lambda: self._decide_pair(self.chance.random() < 0.8))
        else:
            self._waiting.append(attempt)
            self.later(0.0, self.chance.choice((0.01, 0.3, 1.0)), lambda: self._decide(attempt))
        self._begin()

    def _ended(self, attempt: Attempt, outcome: str) -> None:
        if attempt.outcome in (OPEN, SENT):
            attempt.outcome = outcome
        if self._attempt is attempt:
            self._attempt = None
            self.later(0.0, 0.01, self._begin)

    # -- decisions

    def _decide(self, attempt: Attempt) -> None:
        """Commit or roll back; what has been decided once is not decided otherwise."""
        link, xid = self.link, attempt.xid
        if link is None or xid is None or attempt.outcome not in (OPEN, SENT, ROLLED_BACK):
            return
        if attempt.decision is None:
            attempt.decision = attempt.outcome != ROLLED_BACK and self.chance.random() < 0.85
        attempt.asked.add(attempt.decision)
        if attempt.decision:
            attempt.outcome = SENT
        elif True not in attempt.asked:
            attempt.outcome = ROLLED_BACK
        call = partial(link.branches.operations.commit, link.channel, xid, False)
        if not attempt.decision:
            call = partial(link.branches.operations.rollback, link.channel, xid)
        wanted = BranchOutcome.COMMITTED if attempt.decision else BranchOutcome.ROLLED_BACK
        link.branches.status(call, lambda status: None, lambda status: self._tell(link, attempt, wanted, status))
        if attempt not in self._doubts:
            self._doubts.append(attempt)
        if attempt in self._waiting:
            self._waiting.remove(attempt)

    def _give_up_pair(self, attempt: Attempt) -> None:
        """No order came for the second one; one that is under way may fail, and be the last."""
        if self._pair != [attempt]:
            return
        if self._attempt is None:
            self._decide_pair(True)
        else:
            self.later(0.5, 0.5, lambda: self._give_up_pair(attempt))

    def _second(self, link: ClientLink, attempt: Attempt) -> None:
        """Prepare it, or come too late with that."""
        if self.chance.random() < 0.3:
            attempt.outcome = ROLLED_BACK
            self._decide_pair(self.chance.random() < 0.8)
        self._prepare(link, attempt)

    def _decide_pair(self, commit: bool) -> None:
        link, pair = self.link, self._pair
        if link is None or not pair:
            return
        self._pair = []
        assert pair[0].xid is not None
        self._decided[pair[0].xid.globally] = commit
        self._decide_globally(link, pair, commit)
        self._begin()

    def _decide_globally(self, link: ClientLink, pair: list[Attempt], commit: bool) -> None:
        for attempt in pair:
            attempt.asked.add(commit)
            if commit and attempt.outcome == OPEN:
                attempt.outcome = SENT
            elif not commit and True not in attempt.asked:
                attempt.outcome = ROLLED_BACK
            if attempt not in self._doubts:
                self._doubts.append(attempt)
        assert pair[0].xid is not None
        which, wanted = pair[0].xid.globally, BranchOutcome.COMMITTED if commit else BranchOutcome.ROLLED_BACK
        if self.cluster.truth.losses.all:  # one that came too late may be prepared again: its end is among what is lost
            for xid, attempt in self.book.branches.items():
                if xid.globally == which:
                    attempt.asked.add(commit)

        def told(status: XaStatus) -> None:
            if status is XaStatus.OK:
                for attempt in pair:
                    if not attempt.final:  # else it may be forgotten already
                        self._tell(link, attempt, wanted, status)

        decide = partial(link.branches.operations.decide_globally, link.channel, which, commit)
        link.branches.status(decide, lambda status: None, told)

    # -- what is in doubt

    def _look(self) -> None:
        """Look what is prepared, and ask for what became of the others."""
        link = self.link
        if link is None:
            return
        link.branches.recover(self._found)
        for attempt in self._doubts:
            link.branches.outcome(attempt, partial(self._resolve, attempt))
        self.later(0.1, 0.5, self._look)

    def _found(self, listed: list[Xid]) -> None:
        """A branch of ours may be prepared that we took for ended: its requests were on their way."""
        for xid in listed:
            attempt = self.book.branches[xid]
            mine = attempt.client.startswith(f"{self._id}c")
            known = attempt in (self._attempt, *self._doubts, *self._pair, *self._waiting)
            if self.cluster.truth.losses.all and mine and not known:  # its end may be among what is lost
                attempt.outcome = SENT if True in attempt.asked else ROLLED_BACK
            if mine and not known and attempt.outcome in (ROLLED_BACK, SENT):
                self._doubts.append(attempt)

    def _resolve(self, attempt: Attempt, outcome: BranchOutcome) -> None:
        link, xid = self.link, attempt.xid
        if link is None or xid is None or attempt not in self._doubts or outcome is BranchOutcome.PENDING:
            return
        if outcome is BranchOutcome.PREPARED:
            decided = self._decided.get(xid.globally)
            if decided is None:
                self._decide(attempt)
            else:
                self._decide_globally(link, [attempt], decided)
        elif outcome is BranchOutcome.ACTIVE:
            self._roll_back(link, attempt)
        else:
            self._doubts.remove(attempt)
            attempt.final = (
                outcome is not BranchOutcome.UNKNOWN
            )  # its start may be on its way, on an earlier connection
            if xid.globally in self._decided and not any(each.xid.globally == xid.globally for each in self._doubts):
                self._decided.pop(xid.globally)
                link.branches.forget_globally(xid.globally)
            if outcome in HEURISTIC:
                link.branches.forget(xid)
            if outcome in COMMITTED:
                attempt.outcome = OK
            elif outcome is BranchOutcome.UNKNOWN and True in attempt.asked:
                attempt.outcome = UNKNOWN
            else:
                attempt.outcome = ROLLED_BACK


class Operator(Client):
    """Looks at prepared branches, and at times decides one against its coordinator."""

    kind = "operator"

    def connected(self, link: ClientLink) -> None:
        self._look()

    def _look(self) -> None:
        if self.link is not None and not self.stopping:
            self.link.branches.recover(self._found)
            self.later(0.2, 0.8, self._look)

    def _found(self, listed: list[Xid]) -> None:
        link = self.link
        if link is None or not listed or self.chance.random() < 0.5:
            return
        xid, commit = self.chance.choice(listed), self.chance.random() < 0.5
        link.branches.interfere(self.book.branches[xid], commit)
