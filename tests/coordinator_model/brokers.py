"""A cluster of brokers as its clients see it: queues, and branches by the rules of docs/dtx.md."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from recovery.dtx.conversation import Refused
from txobserver import dtx_wire as dtx
from txobserver.outcomes import BranchOutcome, XaStatus
from txobserver.xid import Global, Xid

ACTIVE, IDLE, ROLLBACK_ONLY, PREPARED = "active", "idle", "rollback-only", "prepared"


@dataclass
class Message:
    """``order``: of arrival. ``held``: a client has it, and has not settled it."""

    order: int
    body: bytes
    held: bool = False


@dataclass
class Branch:
    xid: Xid
    channel: ServerChannel | None
    state: str = ACTIVE
    published: list[tuple[str, bytes]] = field(default_factory=list)
    taken: list[tuple[str, Message]] = field(default_factory=list)


class ServerChannel:
    """The broker's end of a channel in dtx mode."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.open = True
        self.branch: Branch | None = None
        self.unsettled: dict[int, tuple[str, Message]] = {}
        self._tag = 0

    def get(self, queue: str) -> tuple[int, bytes] | None:
        """The first message that no client holds, and its tag."""
        for message in self.cluster.queues[queue]:
            if not message.held:
                message.held = True
                self._tag += 1
                self.unsettled[self._tag] = queue, message
                return self._tag, message.body
        return None

    def publish(self, queue: str, body: bytes) -> None:
        """In the branch, or at once."""
        if self.branch is not None:
            self.branch.published.append((queue, body))
        else:
            self.cluster.put(queue, body)

    def acknowledge(self, tag: int) -> None:
        """In the branch, or at once. A tag that is not there closes the channel."""
        found = self.unsettled.pop(tag, None)
        if found is None:
            self.close()
        elif self.branch is not None:
            self.branch.taken.append(found)
        else:
            self.cluster.remove([found])

    def close(self) -> None:
        """What was not settled goes back; what it was working on can only be rolled back."""
        if not self.open:
            return
        self.open = False
        for _, message in self.unsettled.values():
            message.held = False
        self.unsettled.clear()
        if self.branch is not None:
            self.cluster.fail(self.branch)
            self.branch = None


class Cluster:
    """``name`` and ``identity``: as the brokers tell them.

    Many methods: a double of a broker, one for each method of class dtx.
    """

    def __init__(self, name: str, identity: str, queues: Iterable[str]) -> None:
        self.name = name
        self.identity = identity
        self.queues: dict[str, list[Message]] = {queue: [] for queue in queues}
        self.channels: list[ServerChannel] = []
        self.branches: dict[Xid, Branch] = {}
        self.outcomes: dict[Xid, BranchOutcome] = {}
        self.decided: dict[Global, bool] = {}
        self._order = 0

    # -- queues

    def put(self, queue: str, body: bytes) -> None:
        """At the end."""
        self._order += 1
        self.queues[queue].append(Message(self._order, body))

    def remove(self, taken: Iterable[tuple[str, Message]]) -> None:
        """These messages are gone."""
        for queue, message in taken:
            self.queues[queue].remove(message)

    def bodies(self, queue: str) -> list[bytes]:
        """What is in a queue."""
        return [each.body for each in self.queues[queue]]

    def connect(self) -> ServerChannel:
        """A channel on a connection of its own."""
        self.channels.append(ServerChannel(self))
        return self.channels[-1]

    def take_over(self) -> None:
        """Another node is the primary: channels are lost, and branches that have not prepared are gone."""
        for channel in self.channels:
            channel.close()
        self.channels.clear()
        for branch in list(self.branches.values()):
            if branch.state != PREPARED:
                self._drop(branch)

    # -- ends of branches

    def _drop(self, branch: Branch) -> None:
        """Rolled back, without a trace."""
        for _, message in branch.taken:
            message.held = False
        branch.taken.clear()
        branch.published.clear()
        del self.branches[branch.xid]

    def fail(self, branch: Branch) -> None:
        """It can only be rolled back, which the next who asks is told."""
        for _, message in branch.taken:
            message.held = False
        branch.taken.clear()
        branch.published.clear()
        branch.state, branch.channel = ROLLBACK_ONLY, None

    def _finish(self, branch: Branch, commit: bool, heuristic: bool = False) -> None:
        traces = bool(branch.published or branch.taken) and (commit or branch.state == PREPARED)
        if commit:
            for queue, body in branch.published:
                self.put(queue, body)
            self.remove(branch.taken)
            del self.branches[branch.xid]
        else:
            self._drop(branch)
        if heuristic:
            kinds = (BranchOutcome.HEURISTICALLY_ROLLED_BACK, BranchOutcome.HEURISTICALLY_COMMITTED)
            self.outcomes[branch.xid] = kinds[commit]
        elif traces:
            self.outcomes[branch.xid] = BranchOutcome.COMMITTED if commit else BranchOutcome.ROLLED_BACK

    def operate(self, xid: Xid, commit: bool) -> None:
        """An operator decides a prepared branch."""
        self._finish(self.branches[xid], commit, heuristic=True)

    def prepared(self) -> list[Xid]:
        """Branches that are."""
        return [xid for xid, branch in self.branches.items() if branch.state == PREPARED]

    def heuristic(self) -> list[Xid]:
        """Branches that an operator has decided, which is remembered."""
        return [xid for xid, outcome in self.outcomes.items() if outcome.name.startswith("HEUR")]

    # -- methods

    def handle(self, channel: ServerChannel, method: dtx.DtxMethod) -> Any:
        """The answer. Raises Refused, and has closed the channel then."""
        try:
            return getattr(self, f"_{type(method).__name__.lower()}")(channel, method)
        except Refused:
            channel.close()
            raise

    def _select(self, channel: ServerChannel, method: dtx.Select) -> dtx.SelectOk:
        return dtx.SelectOk()

    def _start(self, channel: ServerChannel, method: dtx.Start) -> dtx.StartOk:
        xid = Xid(*method.xid)
        if xid in self.branches or self.outcomes.get(xid, BranchOutcome.ROLLED_BACK) is not BranchOutcome.ROLLED_BACK:
            raise Refused(530, f"branch {xid} is known")
        if channel.branch is not None:
            raise Refused(503, "the channel works on another branch")
        channel.branch = self.branches[xid] = Branch(xid, channel)
        return dtx.StartOk(0, 1)

    def _end(self, channel: ServerChannel, method: dtx.End) -> dtx.EndOk:
        branch = self._find(Xid(*method.xid))
        if branch.state == ROLLBACK_ONLY:
            return dtx.EndOk(XaStatus.ROLLED_BACK)
        if channel.branch is not branch:
            raise Refused(409, "the channel does not work on it")
        channel.branch, branch.channel, branch.state = None, None, IDLE
        return dtx.EndOk(0)

    def _find(self, xid: Xid) -> Branch:
        if xid not in self.branches:
            raise Refused(404, f"there is no branch {xid}")
        return self.branches[xid]

    def _closing(self, xid: Xid) -> Branch:
        branch = self._find(xid)
        if branch.state == ACTIVE:
            raise Refused(409, "a channel works on it")
        return branch

    def _prepare(self, channel: ServerChannel, method: dtx.Prepare) -> dtx.PrepareOk:
        branch = self._closing(Xid(*method.xid))
        if branch.state == PREPARED:
            raise Refused(409, "it is prepared")
        if branch.state == ROLLBACK_ONLY or branch.xid.globally in self.decided:
            self._drop(branch)
            return dtx.PrepareOk(XaStatus.ROLLED_BACK)
        if not branch.published and not branch.taken:
            self._drop(branch)
            return dtx.PrepareOk(XaStatus.READ_ONLY)
        branch.state = PREPARED
        return dtx.PrepareOk(0)

    def _commit(self, channel: ServerChannel, method: dtx.Commit) -> dtx.CommitOk:
        xid = Xid(*method.xid)
        branch = self._ended(xid) or self._closing(xid)
        if isinstance(branch, XaStatus):
            return dtx.CommitOk(branch)
        if branch.state == ROLLBACK_ONLY or (method.one_phase and xid.globally in self.decided):
            self._drop(branch)
            return dtx.CommitOk(XaStatus.ROLLED_BACK)
        if method.one_phase is (branch.state == PREPARED):
            raise Refused(409, f"it is {branch.state}")
        self._finish(branch, True)
        return dtx.CommitOk(0)

    def _rollback(self, channel: ServerChannel, method: dtx.Rollback) -> dtx.RollbackOk:
        xid = Xid(*method.xid)
        branch = self._ended(xid) or self._closing(xid)
        if isinstance(branch, XaStatus):
            return dtx.RollbackOk(branch)
        failed = branch.state == ROLLBACK_ONLY
        self._finish(branch, False)
        return dtx.RollbackOk(XaStatus.ROLLED_BACK if failed else 0)

    def _ended(self, xid: Xid) -> XaStatus | None:
        """What a decision on a branch is told that an operator has decided."""
        found = self.outcomes.get(xid)
        return XaStatus(found) if found is not None and found.name.startswith("HEUR") else None

    def outcome_of(self, xid: Xid) -> BranchOutcome:
        """As a question for it is answered."""
        if xid not in self.branches:
            return self.outcomes.get(xid, BranchOutcome.UNKNOWN)
        states = {PREPARED: BranchOutcome.PREPARED, ROLLBACK_ONLY: BranchOutcome.ROLLED_BACK}
        return states.get(self.branches[xid].state, BranchOutcome.ACTIVE)

    def _outcome(self, channel: ServerChannel, method: dtx.Outcome) -> dtx.OutcomeOk:
        return dtx.OutcomeOk(self.outcome_of(Xid(*method.xid)))

    def _recover(self, channel: ServerChannel, method: dtx.Recover) -> dtx.RecoverOk:
        found = [*self.prepared(), *self.heuristic()]
        return dtx.RecoverOk(dtx.pack_xids([dtx.XidFields(*xid) for xid in found]))

    def _decide(self, channel: ServerChannel, method: dtx.Decide) -> dtx.DecideOk:
        which = Global(method.format_id, method.global_id)
        if self.decided.setdefault(which, method.commit) is not method.commit:
            raise Refused(409, "it was decided otherwise")
        for xid in [xid for xid in self.prepared() if xid.globally == which]:
            self._finish(self.branches[xid], method.commit)
        against = (BranchOutcome.HEURISTICALLY_COMMITTED, BranchOutcome.HEURISTICALLY_ROLLED_BACK)[method.commit]
        mixed = [xid for xid in self.heuristic() if xid.globally == which and self.outcomes[xid] is against]
        return dtx.DecideOk(XaStatus(against) if mixed else 0)

    def _forget(self, channel: ServerChannel, method: dtx.Forget) -> dtx.ForgetOk:
        self.forget(Xid(*method.xid))
        return dtx.ForgetOk()

    def forget(self, xid: Xid) -> None:
        """How it ended. Raises Refused."""
        if xid in self.branches:
            raise Refused(409, "it has not ended")
        if self.outcomes.pop(xid, None) is None:
            raise Refused(404, f"there is no branch {xid}")
