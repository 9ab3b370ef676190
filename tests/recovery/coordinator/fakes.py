"""Resources and decisions in plain memory, and a world that counts the steps between them: each can be the last."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from recovery.coordinator.decisions import Decision, DecisionRefused, DecisionUnknown
from recovery.coordinator.names import GlobalName, new_global_name, our_name
from recovery.coordinator.resources import BranchRolledBack, Participant, ResourceLost
from txobserver.outcomes import BranchOutcome
from txobserver.xid import Xid


class Killed(BaseException):
    """The process that made this step is no more."""


class World:
    """Every call of a resource or of the log is two steps: before it takes effect, and before its answer arrives.

    ``at``: what happens at these steps. A resource that is lost there may have done what it was asked, or not.
    """

    def __init__(self) -> None:
        self.at: dict[int, Callable[[], None]] = {}
        self.steps = 0
        self._dead = False

    def kill(self) -> None:
        """The worker does nothing any more, its handlers neither, until ``revive``."""
        self._dead = True
        raise Killed

    def revive(self) -> None:
        """Another process is at work, and nothing happens to it."""
        self._dead = False
        self.at.clear()

    def step(self) -> None:
        if self._dead:
            raise Killed
        number, self.steps = self.steps, self.steps + 1
        happens = self.at.pop(number, None)
        if happens is not None:
            happens()


class MemoryResource:
    """``branches``: what each is; ``fenced``: transactions that may not prepare any more, where that can be."""

    def __init__(self, world: World, name: str, fences: bool) -> None:
        self.name = name
        self.world = world
        self.branches: dict[Xid, BranchOutcome | None] = {}
        self.ended: dict[Xid, BranchOutcome] = {}
        self.fenced: set[bytes] = set()
        self.forgotten: list[Xid] = []
        self.empty = False
        self.refuses = False
        self._fences = fences

    def begin(self, xid: Xid) -> None:
        self.world.step()
        self.branches[xid] = None
        self.world.step()

    def prepare(self, xid: Xid) -> Participant | None:
        self.world.step()
        if self.branches.get(xid, BranchOutcome.PREPARED) is not None or xid.gtrid in self.fenced or self.refuses:
            self.branches.pop(xid, None)
            raise BranchRolledBack("it is not there any more")
        if self.empty:
            del self.branches[xid]
        else:
            self.branches[xid] = BranchOutcome.PREPARED
        self.world.step()
        return None if self.empty else self.ticket(xid)

    def commit_in_one_phase(self, xid: Xid) -> None:
        self.world.step()
        if self.refuses or xid not in self.branches:
            raise BranchRolledBack("refused")
        self._end(xid, BranchOutcome.COMMITTED)
        self.world.step()

    def abandon(self, xid: Xid) -> None:
        self.world.step()
        self._end(xid, BranchOutcome.ROLLED_BACK)
        self.world.step()

    def in_doubt(self) -> list[Xid]:
        self.world.step()
        heuristic = [xid for xid, fate in self.ended.items() if fate.heuristic and xid not in self.forgotten]
        found = [xid for xid, fate in self.branches.items() if fate is BranchOutcome.PREPARED] + heuristic
        self.world.step()
        return found

    def settle(self, xid: Xid, commit: bool, ticket: str) -> BranchOutcome:
        self.world.step()
        assert self.branches.get(xid, BranchOutcome.PREPARED) is BranchOutcome.PREPARED, (
            "what has not prepared cannot be settled"
        )
        self._end(xid, BranchOutcome.COMMITTED if commit else BranchOutcome.ROLLED_BACK)
        self.world.step()
        return self._ended(xid)

    def decide_heuristically(self, xid: Xid, commit: bool) -> None:
        self._end(xid, BranchOutcome.HEURISTICALLY_COMMITTED if commit else BranchOutcome.HEURISTICALLY_ROLLED_BACK)

    def _end(self, xid: Xid, fate: BranchOutcome) -> None:
        if xid in self.branches:
            del self.branches[xid]
            self.ended[xid] = fate

    def fate(self, xid: Xid, ticket: str) -> BranchOutcome:
        self.world.step()
        return self.branches.get(xid) or self._ended(xid)

    def _ended(self, xid: Xid) -> BranchOutcome:
        return BranchOutcome.UNKNOWN if xid in self.forgotten else self.ended.get(xid, BranchOutcome.UNKNOWN)

    def fence(self, xid: Xid) -> None:
        self.world.step()
        if self._fences:
            self.fenced.add(xid.gtrid)
            for each in [each for each in self.branches if each.gtrid == xid.gtrid]:
                if self.branches[each] is BranchOutcome.PREPARED:
                    self._end(each, BranchOutcome.ROLLED_BACK)
        self.world.step()

    def forget(self, xid: Xid) -> None:
        self.world.step()
        self.forgotten.append(xid)
        self.world.step()

    def close(self) -> None:
        """There is no connection."""

    def ticket(self, xid: Xid) -> Participant:
        """As it is given out at prepare."""
        return Participant(self.name, xid.bqual.decode(), "ticket")

    def lose_session(self) -> None:
        """Its client is gone: what has not prepared is rolled back."""
        for xid in [xid for xid, fate in self.branches.items() if fate is None]:
            self._end(xid, BranchOutcome.ROLLED_BACK)


class MemoryDecisions:
    """A log that is never lost, and forgets nothing; a step at which it is cut off leaves who asked in the dark."""

    whose = "w"

    def __init__(self, world: World) -> None:
        self.world = world
        self.made: dict[str, Decision] = {}
        self.ended: dict[str, Decision] = {}

    def new_name(self) -> GlobalName:
        return new_global_name(self.whose)

    def owns(self, xid: Xid) -> GlobalName | None:
        return our_name(xid, self.whose)

    def _step(self) -> None:
        try:
            self.world.step()
        except ResourceLost as error:
            raise DecisionUnknown(str(error)) from None

    def decide(self, name: str, commit: bool, participants: Sequence[Participant] = ()) -> bool:
        self._step()
        stands = self.ended.get(name) or self.made.setdefault(name, Decision(commit, 0.0, tuple(participants)))
        self._step()
        return stands.commit

    def decision(self, name: str) -> Decision | None:
        self._step()
        found = self.ended.get(name) or self.made.get(name)
        self._step()
        return found

    def unfinished(self) -> dict[str, Decision]:
        return {name: each for name, each in self.made.items() if each.commit}

    def finish(self, name: str) -> None:
        try:
            self.world.step()
            if name in self.made:
                self.ended[name] = self.made.pop(name)
            self.world.step()
        except ResourceLost as error:
            raise DecisionRefused(str(error)) from None
