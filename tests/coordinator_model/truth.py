"""What each transaction was to do, what its caller was told, and what came of it: the one truth, and the comparison."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

PROTECTION = "protection of what was read"
NOTIFIED = "notification"
COMMITTED, ROLLED_BACK, UNKNOWN, HEURISTIC = "committed", "rolled back", "unknown", "heuristic"


class BrokenPromise(Exception):
    """Something came out that no schedule may bring about. ``promise``: its name."""

    def __init__(self, promise: str, text: str) -> None:
        super().__init__(f"{promise}: {text}")
        self.promise = promise


@dataclass
class Effect:
    """``count``: how often it is there."""

    what: str
    count: Callable[[], int]


@dataclass
class Attempt:
    """One transaction. ``names``: what the product called it. ``must``: nothing stands in the way of its commit.

    ``lazy``: the database is told that its crash may take back what it alone has committed.
    ``company``: what was done by another session that does not decide; it may be left alone by a crash, but not by a
    caller who was told.
    """

    name: str
    effects: list[Effect] = field(default_factory=list)
    company: list[Effect] = field(default_factory=list)
    names: set[str] = field(default_factory=set)
    consumed: list[bytes] = field(default_factory=list)
    told: str = UNKNOWN
    reason: str = ""
    must: bool = True
    lazy: bool = False

    @property
    def traces(self) -> list[Effect]:
        """By these one sees whether it has committed. That it has read is over before that is decided."""
        return [each for each in self.effects if each.what != PROTECTION]

    @property
    def is_done(self) -> bool:
        """Whether there is any of them."""
        return any(each.count() for each in self.traces)


class Truth:
    """``interfered``: transactions that an operator has touched. ``reported``: those of which a process was told so."""

    def __init__(self) -> None:
        self.attempts: list[Attempt] = []
        self.interfered: set[str] = set()
        self.reported: set[str] = set()

    def begin(self, name: str) -> Attempt:
        """One more."""
        self.attempts.append(Attempt(name))
        return self.attempts[-1]

    def judge(self) -> None:
        """Raises BrokenPromise."""
        for attempt in self.attempts:
            self._judge(attempt)

    def _judge(self, attempt: Attempt) -> None:
        counts = {each.what: each.count() for each in attempt.effects}
        if not attempt.is_done and (attempt.traces or attempt.told != COMMITTED):
            counts.pop(PROTECTION, None)  # it ends before the decision, and to protect too much does no harm
        seen = f"{attempt.name} ({attempt.told}{': ' + attempt.reason if attempt.reason else ''}): {counts}"
        if max(counts.values(), default=0) > 1:
            raise BrokenPromise("once", seen)
        touched = attempt.names & self.interfered
        if touched and (attempt.names & self.reported or attempt.told == HEURISTIC):
            return
        alone = not attempt.consumed and "message" not in counts
        if alone and "foreign row" in counts:
            return  # where it takes part alone, PostgreSQL does not promise that its crash leaves both or neither
        if alone and attempt.lazy and attempt.told != ROLLED_BACK and not any({**counts, NOTIFIED: 0}.values()):
            counts.pop(NOTIFIED, None)  # listeners were told, and the crash took back what it was allowed to
        if len(set(counts.values())) > 1:
            raise BrokenPromise("told of operators" if touched else "both or neither", seen)
        done = any(counts.values())
        if touched and attempt.told in (COMMITTED, ROLLED_BACK) and counts and done is not (attempt.told == COMMITTED):
            raise BrokenPromise("told of operators", seen)
        if attempt.told == COMMITTED and counts and not done and not (attempt.lazy and alone):
            raise BrokenPromise("told what happened", seen)
        if attempt.told == ROLLED_BACK and done:
            raise BrokenPromise("told what happened", seen)
        if attempt.told == HEURISTIC and not touched:
            raise BrokenPromise("told what happened", f"{seen}, and no operator was there")
        for each in attempt.company:
            if attempt.told == COMMITTED and not each.count():
                raise BrokenPromise("both or neither", f"{seen}; without {each.what}")

    def judge_inputs(self, left: Callable[[bytes], int], inputs: list[bytes]) -> None:
        """Every message was taken by one transaction, or is in its queue."""
        for body in inputs:
            takers = [each for each in self.attempts if body in each.consumed]
            silent = [each for each in takers if not each.traces]  # nothing else says what became of them
            if any(each.names & self.interfered for each in takers) or any(each.told == UNKNOWN for each in silent):
                continue
            done = [each.name for each in takers if each.is_done]
            done += [each.name for each in silent if each.told == COMMITTED]
            if len(done) + left(body) != 1:
                raise BrokenPromise("once", f"{body!r} was taken by {done}, and is {left(body)} times in its queue")
