"""The decision log: which transactions were decided, and how, so that a record that was told is never lost.

- The first decision on a transaction stands, whichever process made it.
- No process acts on a record before a sync that began after it was written, its reader neither.
- Absence means abort: so an unreadable log decides nothing any more, and neither is a commit decided whose
  abort may be forgotten.
- Absence in an older copy of the log means nothing: so what prepares last in a transaction does it behind the
  transaction's intent, and a copy without that is recognised (docs/decisions/older-logs.md).

``recovery.coordinator.log_file`` is the file, ``recovery.coordinator.log_lines`` its lines.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from recovery.coordinator.decisions import Decision, DecisionRefused
from recovery.coordinator.log_file import LogFile
from recovery.coordinator.log_lines import (
    VERSION,
    Line,
    LogContents,
    decode_lines,
    end_line,
    first_line,
    intent_line,
    resource_line,
)
from recovery.coordinator.names import GlobalName, new_global_name, our_name
from recovery.coordinator.resources import Participant
from recovery.coordinator.steps import Reached, unwatched
from recovery.store.files import REAL_FILES, Files, explain
from txobserver.ports.store import StoreDamaged, StoreError
from txobserver.xid import Xid

COMPACT_BYTES = 1 << 20
"""A log is made smaller when it has grown by so many bytes, and most of them are of transactions that have ended."""

_MAY_BE_FORGOTTEN = (
    "the log has forgotten which transactions were aborted that began as early as this one, and it may be one of them: "
    "begin it again"
)


class DecisionLog:
    """The log at ``path``, made if it is not there. Any number of threads and processes may use it at once.

    ``compact_bytes``: how much it grows before it is looked at whether it can be smaller. ``reached``: for tests; it is
    told each step by name. Raises StoreDamaged for a log that a crash cannot have left so, StoreError for what cannot
    be read or made.
    """

    def __init__(
        self,
        path: Path,
        compact_bytes: int = COMPACT_BYTES,
        files: Files = REAL_FILES,
        reached: Reached = unwatched,
    ) -> None:
        self.path = path = Path(path)
        self._reached = reached
        try:
            self._file = LogFile(path, compact_bytes, files)
            with self._file.locked():
                self._bring_forward()
        except OSError as error:
            raise explain(error, path) from None

    def _bring_forward(self) -> None:
        """A log of an earlier version, in which that decides no more: it would give no intents."""
        contents = self._file.contents
        if contents.version < VERSION:
            self._file.append(first_line(contents.whose, contents.forgotten))

    @property
    def whose(self) -> str:
        """The id of the log, with which the names of its transactions begin."""
        return self._file.whose

    def close(self) -> None:
        """Let go of the file."""
        self._file.close()

    # -- decisions (recovery.coordinator.decisions.Decisions)

    def new_name(self) -> GlobalName:
        """For a transaction that begins now, and later than any of which an abort is forgotten, whatever clocks say."""
        return new_global_name(self.whose, self._file.contents.forgotten + 1)

    def fenced_name(self, last: str) -> GlobalName:
        """The same; the branch ``last`` prepares behind the transaction's intent, if it takes part."""
        return new_global_name(self.whose, self._file.contents.forgotten + 1, last)

    def owns(self, xid: Xid) -> GlobalName | None:
        """The global transaction of a branch if it hangs on this log."""
        return our_name(xid, self.whose)

    def decide(self, name: str, commit: bool, participants: Sequence[Participant] = ()) -> bool:
        """Record the decision durably unless there is one already; returns the one that stands.

        A commit is refused if an abort may have stood that is forgotten. No clock has a say in that: those of machines
        are set, and the coordinator's may be another one than that of who made the log smaller.
        """
        now = time.time()
        line: Line = {"commit": name, "at": now, "participants": participants} if commit else {"abort": name, "at": now}
        with self._acting(), self._file.locked():
            stands = self._file.contents.stands(name)
            if stands is None:
                if commit:
                    self._refuse_what_may_be_forgotten(name)
                self._file.append(line)
                self._reached("decision written")
            end = self._file.end
        self._file.sync(end)
        self._reached("decision synced")
        return commit if stands is None else stands.commit

    def _refuse_what_may_be_forgotten(self, name: str) -> None:
        if self._file.contents.may_have_forgotten(name):
            raise DecisionRefused(_MAY_BE_FORGOTTEN)

    def intend(self, name: str, participants: Sequence[Participant], last: str) -> None:
        """Every branch but the last has prepared, at these; when this returns, that is durable, and who takes part."""
        with self._acting(), self._file.locked():
            contents = self._file.contents
            for resource in (*(each.resource for each in participants), last):
                if resource not in contents.resources:
                    self._file.append(resource_line(resource))
            if contents.stands(name) is None:
                self._file.append(intent_line(name, participants, time.time()))
            end = self._file.end
        self._file.sync(end)

    def intent(self, name: str) -> tuple[Participant, ...] | None:
        """Who had prepared when the last branch was about to; None if there is no intent, or it has been decided."""
        with self._acting(), self._file.locked():
            found = self._file.contents.intents.get(name)
        return None if found is None else found.participants

    def may_have_forgotten(self, name: str) -> bool:
        """Whether the transaction may have had an intent or an abort that is not kept any more."""
        return self._file.contents.may_have_forgotten(name)

    def resources(self) -> tuple[str, ...]:
        """Every resource that has taken part so far, but for those that are no more."""
        with self._acting(), self._file.locked():
            return tuple(self._file.contents.resources)

    def drop_resource(self, resource: str) -> bool:
        """This resource is no more: recovery runs need not ask it. Returns whether the log had named it."""
        with self._acting(), self._file.locked():
            named = resource in self._file.contents.resources
            if named:
                self._file.append(resource_line(resource, gone=True))
            end = self._file.end
        self._file.sync(end)
        return named

    def decision(self, name: str) -> Decision | None:
        """The decision that stands, durable, also if it has ended; None if there is none (or it has been forgotten)."""
        with self._acting(), self._file.locked():
            found, end = self._file.contents.stands(name), self._file.end
        self._file.sync(end)
        return found

    def unfinished(self) -> dict[str, Decision]:
        """Commits, by name, that not every participant is known to have carried out."""
        with self._acting(), self._file.locked():
            found = {name: each for name, each in self._file.contents.decisions.items() if each.commit}
            end = self._file.end
        self._file.sync(end)
        return found

    def finish(self, name: str) -> None:
        """Every participant has carried out the commit: it may be forgotten. Not synced: it is only housekeeping."""
        with self._acting(), self._file.locked():
            if name in self._file.contents.decisions:
                self._file.append(end_line(name, time.time()))
            if self._file.has_grown:
                self._file.compact(time.time())

    @contextmanager
    def _acting(self) -> Iterator[None]:
        """Errors of the file become those of decisions: nothing whole was recorded."""
        if self._file.failed is not None:
            raise DecisionRefused(self._file.failed)
        try:
            yield
        except OSError as error:
            raise DecisionRefused(str(explain(error, self.path))) from None
        except StoreError as error:
            self._file.fail(str(error))
            raise DecisionRefused(str(error)) from None


def read_decisions(path: Path) -> tuple[str, dict[str, Decision], dict[str, Decision]]:
    """Whose log it is, the decisions that stand and have not ended, and the commits that have.

    Nothing is changed, not even a torn tail, and no lock is waited for. Raises StoreDamaged, StoreError.
    """
    contents = LogContents()
    try:
        data = path.read_bytes()
    except OSError as error:
        raise StoreError(f"{path} cannot be read: {error.strerror}") from None
    for line, _, _ in decode_lines(data, 0, path, 0):
        contents.take(line, path)
    if not contents.whose:
        raise StoreDamaged(f"{path} does not begin like a decision log; restore it")
    return contents.whose, contents.decisions, {name: each.decision for name, each in contents.ended.items()}
