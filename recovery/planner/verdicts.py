"""What each branch in doubt should become, and why.

1. A decision on its global transaction that the promoted stream holds is carried out by the new primary itself.
2. A decision that only a node holds which is not promoted may have been told: it is followed.
3. The coordinator's decision log, or the table in its database, says commit or abort.
4. Neither says anything: presumed abort. But only if log or table is whole, and nothing acknowledged can be lost: a
   commit that every participant has made is forgotten there, and its trace may be in the events that are lost.
5. What contradicts any of that, or hangs on none of those that were asked, is for people.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any

import msgspec

from recovery.coordinator.names import FORMAT_ID, our_name
from recovery.planner.facts import BranchInDoubt, DatabaseFacts, Evidence, LogFacts, Loss, PromotedContents, ToldClient
from recovery.planner.losses import DECISION, GLOBAL
from txobserver.outcomes import BranchOutcome
from txobserver.xid import Xid, parse_xid

BROKER = "broker"


TO_BECOME = {
    BranchOutcome.COMMITTED: "commit",
    BranchOutcome.ROLLED_BACK: "roll back",
    BranchOutcome.UNKNOWN: "operator",
}
"""What a branch should become, as reports say it; ``operator``: an operator has to find out."""


class By(StrEnum):
    """Who carries it out."""

    PRIMARY = "new primary"
    RECOVERY = "dtx recover"
    """With the log or the database that decided it"""
    HAND = "by hand"
    NONE = "nobody"


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """One branch. ``resource``: ``broker``, or the address of a database. ``source``: the log or database followed.

    ``outcome``: what the branch should become, one of those in TO_BECOME.
    """

    xid: Xid
    resource: str
    outcome: BranchOutcome
    by: By
    reason: str
    source: str = ""


_OF_WORD = {word: outcome for outcome, word in TO_BECOME.items()}


class _Word(msgspec.Struct, frozen=True, kw_only=True):
    """What a log or a table says of a transaction. ``commit`` None: nothing, and ``whole``: it would."""

    source: str
    commit: bool | None
    whole: bool = True
    ended: bool = False
    what: str = ""


def verdicts(
    contents: PromotedContents, lost: Iterable[Loss], sure: bool, evidence: Evidence, earlier: Mapping[str, Verdict]
) -> list[Verdict]:
    """One for each branch in doubt, at the broker and at databases, and for each that an operator decided otherwise.

    ``sure``: nothing that was acknowledged is lost. ``earlier``: what was said of a branch, by its xid as text, when a
    plan was carried out that lost something.
    """
    court = _Court(contents, lost, sure, evidence, earlier)
    found = [court.of_branch(branch) for branch in contents.branches]
    found += [verdict for xid, commit in contents.heuristic.items() if (verdict := court.of_operator(xid, commit))]
    for database in evidence.databases:
        found += [court.of_database(database, xid) for xid in database.prepared if court.knows(xid)]
    return found


class _Court:
    def __init__(
        self,
        contents: PromotedContents,
        lost: Iterable[Loss],
        sure: bool,
        evidence: Evidence,
        earlier: Mapping[str, Verdict],
    ) -> None:
        self._contents = contents
        self._evidence = evidence
        self._sure = sure
        self._earlier = earlier
        told = [loss for loss in lost if loss.told is not ToldClient.NEVER]
        self._lost: Mapping[str, Loss] = {loss.name: loss for loss in told if loss.kind == DECISION}
        self._lost_globally: Mapping[str, Loss] = {loss.name: loss for loss in told if loss.kind == GLOBAL}

    def of_branch(self, branch: BranchInDoubt) -> Verdict:
        """A branch that the promoted node has prepared."""
        xid, word = branch.xid, self._word(branch.xid)
        decided = self._contents.globally.get(xid.globally)
        if decided is not None:
            if word is not None and word.commit is not None and word.commit is not decided:
                reason = f"the stream holds the decision to {_verb(decided)}, but {word.what}"
                return self._operator(xid, reason)
            reason = f"the stream holds the decision to {_verb(decided)} its global transaction"
            return Verdict(xid=xid, resource=BROKER, outcome=_outcome(decided), by=By.PRIMARY, reason=reason)
        elsewhere = self._lost.get(str(xid)) or self._lost_globally.get(str(xid.globally))
        if elsewhere is not None and elsewhere.commit is not None:
            return self._followed(xid, elsewhere, elsewhere.commit, word)
        before = self._earlier.get(str(xid))
        if before is not None and before.by is By.HAND:
            return self._unless_contradicted(before, word)
        against = self._database_against(xid, word.commit, word.what) if word and word.commit is not None else ""
        if against:
            return self._operator(xid, against)
        return self._by_word(xid, BROKER, word)

    def of_operator(self, xid: Xid, commit: bool) -> Verdict | None:
        """A branch that an operator has decided; None unless the coordinator is known to have decided otherwise."""
        word = self._word(xid)
        if word is None or word.commit is None or word.commit is commit:
            return None
        return self._operator(xid, f"an operator has decided to {_verb(commit)} it, but {word.what}: it is mixed")

    def of_database(self, database: DatabaseFacts, xid: Xid) -> Verdict:
        """A branch that a database has prepared, of a coordinator that is known."""
        decided = self._contents.globally.get(xid.globally)
        word = self._word(xid)
        if word is not None and word.commit is not None:
            return self._by_word(xid, database.address, word)
        if decided:
            reason = "the broker's stream holds the decision to commit its global transaction, but no log says so"
            return self._operator(xid, reason, database.address)
        return self._by_word(xid, database.address, word)

    def knows(self, xid: Xid) -> bool:
        """Whether a branch of a database is any of our business."""
        globally = {branch.xid.globally for branch in self._contents.branches} | self._contents.globally.keys()
        return self._word(xid) is not None or xid.globally in globally

    # -- the reasons

    def _followed(self, xid: Xid, elsewhere: Loss, commit: bool, word: _Word | None) -> Verdict:
        holders = " and ".join(elsewhere.nodes)
        said = f"{holders} held the decision to {_verb(commit)} it at {elsewhere.position}, which may have been told"
        followed = Verdict(xid=xid, resource=BROKER, outcome=_outcome(commit), by=By.HAND, reason=said)
        return self._unless_contradicted(followed, word)

    def _unless_contradicted(self, verdict: Verdict, word: _Word | None) -> Verdict:
        """A verdict that neither log nor database need know of; for people if one of them says otherwise.

        Also one of an earlier plan: the log may not have been given then (``by_hand_against_the_log``).
        """
        commit = verdict.outcome is BranchOutcome.COMMITTED
        if word is not None and word.commit is not None and word.commit is not commit:
            return self._operator(verdict.xid, f"{verdict.reason}, but {word.what}")
        against = self._database_against(verdict.xid, commit, verdict.reason)
        return self._operator(verdict.xid, against) if against else verdict

    def _by_word(self, xid: Xid, resource: str, word: _Word | None) -> Verdict:
        if word is None:
            return self._operator(xid, self._whom_to_ask(xid), resource)
        if word.commit is None and not word.whole:
            return self._operator(xid, word.what, resource)
        if word.commit is None and (not self._sure or str(xid) in self._earlier):
            reason = f"{word.what}, and one may be among what is lost: an abort cannot be presumed"
            return self._operator(xid, reason, resource)
        reason = word.what if word.commit is not None else f"{word.what}: presumed abort"
        by = By.HAND if word.ended else By.RECOVERY
        outcome = _outcome(bool(word.commit))
        return Verdict(xid=xid, resource=resource, outcome=outcome, by=by, reason=reason, source=word.source)

    def _word(self, xid: Xid) -> _Word | None:
        """What the log or the table says that the branch hangs on; None if neither was given."""
        for log in self._evidence.logs:
            if not log.fault and our_name(xid, log.whose) is not None:
                return _word_of_log(log, str(our_name(xid, log.whose)))
        for database in self._evidence.databases:
            name = our_name(xid, database.whose, database.earlier)
            if name is not None:
                return _word_of_table(database, str(name))
        faults = [log.fault for log in self._evidence.logs] + [each.fault for each in self._evidence.databases]
        if any(faults) and xid.format_id == FORMAT_ID:
            return _Word(source="", commit=None, whole=False, what=next(filter(None, faults)))
        return None

    def _database_against(self, xid: Xid, commit: bool, said: str) -> str:
        """A participant that is known to have done something else than was decided; ``said``: by whom."""
        for database in self._evidence.databases:
            for theirs, fate in database.fates.items():
                if theirs.globally == xid.globally and fate.contradicts(commit):
                    return f"{said}, but {database.address} says that its part is {fate.word}"
        return ""

    def _whom_to_ask(self, xid: Xid) -> str:
        holders = [d.address for d in self._evidence.databases if any(p.globally == xid.globally for p in d.prepared)]
        if xid.format_id == FORMAT_ID:
            whose = xid.gtrid.split(b".")[0].decode(errors="replace")
            return f"it hangs on the decisions {whose}, which were not given (--decisions, --database)"
        if holders:
            return (
                f"its coordinator is not ours, and {holders[0]} has a branch of it prepared, too: ask the coordinator"
            )
        return "its coordinator is not ours: ask it"

    @staticmethod
    def _operator(xid: Xid, reason: str, resource: str = BROKER) -> Verdict:
        return Verdict(xid=xid, resource=resource, outcome=BranchOutcome.UNKNOWN, by=By.NONE, reason=reason)


def _word_of_log(log: LogFacts, name: str) -> _Word:
    if name in log.ended:
        what = f"{log.path} says commit, and that every participant has made it"
        return _Word(source=log.path, commit=True, ended=True, what=what)
    commit = log.commits.get(name)
    if commit is None:
        return _Word(source=log.path, commit=None, what=f"{log.path} has no decision on it")
    return _Word(source=log.path, commit=commit, what=f"{log.path} says {'commit' if commit else 'abort'}")


def _word_of_table(database: DatabaseFacts, name: str) -> _Word:
    commit = database.commits.get(name)
    if commit is None:
        return _Word(source=database.address, commit=None, what=f"{database.address} has no row for it")
    what = f"the table in {database.address} says {'commit' if commit else 'abort'}"
    return _Word(source=database.address, commit=commit, what=what)


def said_before(report: Mapping[str, Any]) -> dict[str, Verdict]:
    """The verdicts of a plan that was carried out, from what the operator was shown; none if it lost nothing."""
    if report["nothing_acknowledged_is_lost"]:
        return {}
    return {str(verdict.xid): verdict for verdict in verdicts_of(report) if verdict.resource == BROKER}


def verdicts_of(report: Mapping[str, Any]) -> list[Verdict]:
    """The verdicts of a plan, from what the operator was shown."""
    return [
        Verdict(
            xid=parse_xid(row["xid"]),
            resource=row["resource"],
            outcome=_OF_WORD[row["outcome"]],
            by=By(row["by"]),
            reason=row["reason"],
            source=row.get("source", ""),
        )
        for row in report["branches"]
    ]


def _outcome(commit: bool) -> BranchOutcome:
    return BranchOutcome.COMMITTED if commit else BranchOutcome.ROLLED_BACK


def _verb(commit: bool) -> str:
    return "commit" if commit else "roll back"
