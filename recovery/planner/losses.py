"""What the events mean, for people, that a node does not have: transactions, messages, settlements, declarations.

Read from the logs of other nodes, also from behind damage, so nothing here relies on the stream's being without gaps.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from recovery.planner.facts import Loss
from txobserver.batch import queues_declared_by
from txobserver.events import (
    Configure,
    DtxDecision,
    DtxOpen,
    DtxPrepare,
    Event,
    Forget,
    GlobalDecision,
    GlobalForget,
    Publish,
    Purge,
    Settle,
    TxDecision,
    TxDequeue,
    TxEnqueue,
    TxOpen,
    TxPrepare,
    TxToken,
)
from txobserver.ids import Position, id_text
from txobserver.xid import Global, Xid

TRANSACTION = "transaction"
MESSAGE = "message"
SETTLEMENT = "settlement"
CONFIGURATION = "configuration"
PURGE = "purge"
PREPARE = "prepared branch"
DECISION = "decision on a branch"
GLOBAL = "decision on a global transaction"
FORGOTTEN = "forgotten outcome"


class Located(NamedTuple):
    """An event of a log. ``lost``: the promoted node does not have it. ``nodes``: who does."""

    position: Position
    event: Event
    lost: bool
    nodes: tuple[str, ...]


class _Work:
    """What a transaction has done so far."""

    def __init__(self, name: Xid | bytes | None = None) -> None:
        self.name = name
        self.puts: Counter[str] = Counter()
        self.takes: Counter[str] = Counter()
        self.events = self.expected = 0
        self.prepare: Located | None = None

    @property
    def what(self) -> str:
        """In words."""
        parts = [f"puts {_counted(self.puts)}"] if self.puts else []
        parts += [f"takes {_counted(self.takes)}"] if self.takes else []
        if self.expected > self.events:
            parts.append(f"and {self.expected - self.events} events that cannot be read")
        return ", ".join(parts)


def losses(events: Iterable[Located], names: Mapping[int, str]) -> list[Loss]:
    """What is lost with the lost events; the others say what those belong to. ``names``: queues by number."""
    reader = _Reader(names)
    for located in events:
        reader.take(located)
    return reader.found()


class _Reader:
    def __init__(self, names: Mapping[int, str]) -> None:
        self._names = dict(names)
        self._work: dict[int, _Work] = {}
        self._found: list[Loss] = []

    def found(self) -> list[Loss]:
        """In the order of the stream. A lost prepare without a decision is a lost branch."""
        for work in self._work.values():
            if work.prepare is not None and work.prepare.lost:
                self._add(work.prepare, PREPARE, str(work.name), work.what)
        return sorted(self._found, key=lambda loss: loss.position)

    def take(self, located: Located) -> None:
        event = located.event
        if isinstance(event, Configure):
            for number, name in queues_declared_by(event).items():
                self._names.setdefault(number, name)
        if isinstance(event, TxDecision | DtxDecision):
            self._decided(located, event)
        elif not self._in_transaction(located) and located.lost:
            self._outside(located)

    def _in_transaction(self, located: Located) -> bool:
        event = located.event
        if isinstance(event, TxOpen | DtxOpen):
            self._work[event.tx] = _Work(event.xid if isinstance(event, DtxOpen) else None)
        elif isinstance(event, TxToken):
            self._of(event.tx).name = event.token
        elif isinstance(event, TxEnqueue):
            self._of(event.tx).puts.update(self._queue(queue) for queue in event.queues)
            self._of(event.tx).events += 1
        elif isinstance(event, TxDequeue):
            self._of(event.tx).takes[self._queue(event.queue)] += len(event.entries)
            self._of(event.tx).events += 1
        elif isinstance(event, TxPrepare | DtxPrepare):
            self._of(event.tx).expected = event.count
            if isinstance(event, DtxPrepare):
                self._of(event.tx).prepare = located
        else:
            return False
        return True

    def _decided(self, located: Located, event: TxDecision | DtxDecision) -> None:
        work = self._work.pop(event.tx, None) or _Work()
        if not located.lost:
            return
        branch = isinstance(work.name, Xid) and work.prepare is not None
        if branch and work.prepare is not None and not work.prepare.lost:
            what = "commit" if event.commit else "rollback"
            by = " by an operator" if isinstance(event, DtxDecision) and event.heuristic else ""
            self._add(
                located, DECISION, str(work.name), f"{what}{by}; the branch would be in doubt again", event.commit
            )
        elif event.commit:
            name = id_text(event.tx)
            if isinstance(work.name, Xid):
                name = str(work.name)
            elif work.name is not None:
                name += f" (token {work.name!r})"
            self._add(located, TRANSACTION, name, work.what)

    def _outside(self, located: Located) -> None:
        event = located.event
        if isinstance(event, Publish):
            queues = ", ".join(self._queue(queue) for queue in event.queues)
            self._add(located, MESSAGE, id_text(event.rid), f"to {queues}")
        elif isinstance(event, Settle):
            count = len(event.entries)
            name = id_text(event.entries[0][1]) if event.entries else ""
            more = f" and {count - 1} more" if count > 1 else ""
            self._add(located, SETTLEMENT, f"{name}{more}", f"of {self._queue(event.queue)}: would come again")
        elif isinstance(event, Configure):
            self._add(located, CONFIGURATION, event.name, event.operation)
        elif isinstance(event, Purge):
            self._add(located, PURGE, self._queue(event.queue), "its messages would be there again")
        elif isinstance(event, GlobalDecision):
            name = str(Global(event.format_id, event.gtrid))
            self._add(located, GLOBAL, name, "commit" if event.commit else "rollback", event.commit)
        elif isinstance(event, Forget | GlobalForget):
            name = str(event.xid if isinstance(event, Forget) else Global(event.format_id, event.gtrid))
            self._add(located, FORGOTTEN, name, "its outcome would be remembered again")

    def _add(self, located: Located, kind: str, name: str, what: str, commit: bool | None = None) -> None:
        position, nodes = located.position, located.nodes
        self._found.append(Loss(kind=kind, name=name, position=position, nodes=nodes, what=what, commit=commit))

    def _of(self, tx: int) -> _Work:
        """A transaction whose beginning stands in what cannot be read is known by its number."""
        return self._work.setdefault(tx, _Work())

    def _queue(self, number: int) -> str:
        return self._names.get(number, f"queue {number}")


def _counted(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{queue} {count}" for queue, count in sorted(counts.items()))
