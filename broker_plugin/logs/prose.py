"""The sentence of each event, as the log in text has it."""

from __future__ import annotations

from collections.abc import Callable

from broker_plugin.logs import events as node
from broker_plugin.logs.events import Event
from ha import log_events as core
from txobserver.ends import END_OF_GENERATIONS
from txobserver.ids import id_text


def sentence(event: Event) -> str:
    """What happened, in words."""
    return _SENTENCES[type(event)](event)


def shortage(ready: int, nodes: int, min_ready: int) -> str | None:
    """What it means that so many of the ``nodes`` are ready; None if all are."""
    if ready >= nodes:
        return None
    counted = f"{ready} of {nodes} nodes {'is' if ready == 1 else 'are'} ready"
    if ready < min_ready:
        return f"{counted} and min_ready is {min_ready}: NOTHING NEW IS COMMITTED"
    if ready == 1:
        return f"{counted}: WHAT IS COMMITTED NOW IS ON ONE DISK"
    spare = ready - min_ready
    return f"{counted}: nothing new is committed when {'another one' if not spare else f'{spare + 1} more'} must leave"


def _nobody_takes_over(event: core.NobodyTakesOver) -> str:
    what = "stands, though it comes behind" if event.stands else "waits for"
    return (
        f"the record has stood still for {event.seconds:.1f} s and no other node has taken over: this node {what} "
        f"{', '.join(event.members)}"
    )


def _too_busy(event: core.TooBusyToStand) -> str:
    return (
        f"the record has stood still, but in steps of more than {event.longest_step:g} s: this node is too busy to "
        "time a lease, or its clock jumps, and cannot take over"
    )


def _outdated(event: core.ForcingOutdated) -> str:
    return (
        f"the loss of data was accepted for version {event.accepted} of the record, which is at version "
        f"{event.version} now: nothing is forced"
    )


def _cancelled(event: core.TransactionCancelled) -> str:
    return f"transaction={id_text(event.transaction)} is cancelled by {event.backup}: {event.reason}"


def _aborted(event: core.TransactionAborted) -> str:
    return f"transaction={id_text(event.transaction)} has no decision here: aborted at failover"


def _refused(event: node.ConnectionsRefused) -> str:
    return (
        f"{event.kind} are refused: {event.limit} files and connections are open, or soon will be, and the rest is the "
        "node's own; find out who connects, or raise the limit of open files (ulimit -n, LimitNOFILE)"
    )


def _operator_decides(event: node.OperatorDecides) -> str:
    return f"an operator wants branch {event.branch} {'committed' if event.commit else 'rolled back'}"


_SENTENCES: dict[type, Callable[..., str]] = {
    core.StateChanged: lambda e: f"state {e.state}",
    core.FollowingPrimary: lambda e: f"following {e.primary}",
    core.PrimarySilent: lambda e: f"{e.primary} is silent, asking to be attached again",
    core.RefusedByPrimary: lambda e: f"{e.primary} refused: {e.reason}",
    core.Detached: lambda e: f"detaching from {e.primary}: {e.reason}",
    core.EventsDiscarded: lambda e: f"discarding events after {e.last}, which the primary does not have",
    core.ResyncBegun: lambda e: "resynchronising queue by queue",
    core.OverwritingRefused: lambda e: e.reason,
    core.RecordRefused: lambda e: e.reason,
    core.StoreFailed: lambda e: f"the store failed: {e.reason}",
    core.SteppingDown: lambda e: f"stepping down: {e.reason}",
    core.HandingOver: lambda e: e.reason,
    core.SuccessorRefused: lambda e: f"{e.backup} asks to take over: {e.reason}",
    core.BackupAttached: lambda e: f"backup {e.backup} attached at {e.common}, guard at {e.guard}",
    core.BackupResyncs: lambda e: f"backup {e.backup} resynchronises queue by queue",
    core.BackupReady: lambda e: f"backup {e.backup} is ready",
    core.OutOfReadySet: lambda e: f"{e.member} is out of the ready set",
    core.BackupSilent: lambda e: f"backup {e.backup} is silent",
    core.BackupLeaves: lambda e: f"backup {e.backup} leaves: {e.reason}",
    core.TransactionCancelled: _cancelled,
    core.TransactionAborted: _aborted,
    core.BranchesPrepared: lambda e: f"{e.branches} branches stay prepared",
    core.ForcingOutdated: _outdated,
    core.GenerationsUsedUp: lambda e: END_OF_GENERATIONS,
    core.NobodyTakesOver: _nobody_takes_over,
    core.TooBusyToStand: _too_busy,
    node.NodeStarted: lambda e: f"started with {e.member} at {e.position}, core {e.core}",
    node.InvariantsChecked: lambda e: f"invariants are checked after each turn ({e.variable}): this node is slow",
    node.NodeFailed: lambda e: e.reason,
    node.AllReady: lambda e: f"all {e.nodes} nodes are ready again",
    node.TooFewReady: lambda e: shortage(e.ready, e.nodes, e.min_ready) or "",
    node.OperatorDecides: _operator_decides,
    node.FilesLimited: lambda e: f"the limit of open files stays at {e.limit}: {e.reason}",
    node.ConnectionsRefused: _refused,
    node.PeerRefused: lambda e: f"closing the connection with {e.peer or 'an unknown peer'}: {e.reason}",
    node.PeerMute: lambda e: f"{e.peer} does not greet within {e.seconds:g} s; it is dialled anew",
    node.ReaderRefused: lambda e: f"closing the connection with a reader: {e.reason}",
    node.ReaderUnanswered: lambda e: f"a reader cannot be answered: {e.kind}: {e.reason}",
    node.LogUnread: lambda e: e.reason,
    node.RecordUnread: lambda e: e.reason,
    node.OperatorGone: lambda e: f"an administration connection ended: {e.reason}",
    node.UnexpectedError: lambda e: f"{e.kind}: {e.reason}",
    node.LoopError: lambda e: e.reason,
}
