"""The sentence of each event, as the log in text has it."""

from __future__ import annotations

from collections.abc import Callable

from broker_plugin.logs import events as node
from broker_plugin.logs import http_events, link_events, passing_events, tls_events
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


def _clients_handed_over(event: core.ClientsHandedOver) -> str:
    what = f"closed {event.clients} clients after {event.seconds:.3f} s"
    return f"{what}, {event.undecided} of them with an outcome that they do not know" if event.undecided else what


def _cancelled(event: core.TransactionCancelled) -> str:
    return f"transaction={id_text(event.transaction)} is cancelled by {event.backup}: {event.reason}"


def _aborted(event: core.TransactionAborted) -> str:
    return f"transaction={id_text(event.transaction)} has no decision here: aborted at failover"


def _refused(event: node.ConnectionsRefused) -> str:
    return (
        f"{event.kind} are refused: {event.limit} files and connections are open, or soon will be, and the rest is the "
        "node's own; find out who connects, or raise the limit of open files (ulimit -n, LimitNOFILE)"
    )


def _memory_short(event: node.MemoryShort) -> str:
    return (
        f"clients hold {event.held} bytes of memory, more than memory.high_bytes ({event.high}): publishers are "
        f"blocked until it is less; {event.kinds}{_unsaid(event.unsaid)}"
    )


def _greedy_client_closed(event: node.GreedyClientClosed) -> str:
    reason = event.reason + _unsaid(event.unsaid)
    return f"client {event.client} is closed, which holds {event.held} bytes: {reason}"


def _disk_short(event: node.DiskShort) -> str:
    effect = "publishers are blocked" if event.primary else "if this node becomes primary, publishers are blocked"
    return (
        f"{event.free} bytes are free on the disk of {event.directory}, less than store.disk_free_bytes "
        f"({event.least}): {effect} until there is more"
    )


def _peer_refused(event: node.PeerRefused) -> str:
    return f"closing the connection with {event.peer or 'an unknown peer'}{_closed(event)}"


def _reader_refused(event: node.ReaderRefused) -> str:
    return f"closing the connection with a reader{_closed(event)}"


def _closed(event: node.PeerRefused | node.ReaderRefused) -> str:
    where = f" at {event.address}" if event.address else ""
    more = f" ({event.unsaid} more were closed since the last line like this)" if event.unsaid else ""
    return f"{where}: {event.reason}{more}"


def _tls_refused(event: tls_events.TlsRefused) -> str:
    where = f" from {event.address}" if event.address else ""
    more = f" ({event.unsaid} more were closed since the last line like this)" if event.unsaid else ""
    return f"closing a connection of {event.what}{where} that cannot be encrypted: {event.reason}{more}"


def _unsaid(times: int) -> str:
    return f" ({times} more times since the last line like this)" if times else ""


def _logins(event: node.LoginsRefused) -> str:
    times = "" if event.refusals == 1 else f" ({event.refusals} times since the last such line)"
    return f"the login of '{event.login}' from {event.address or 'this process'} is refused{times}: {event.reason}"


def _long_turn(event: node.LongTurn) -> str:
    client = f", while {event.client} was served" if event.client else ""
    return (
        f"a turn of the event loop took {event.seconds:.3f} s of processor time, {event.call_seconds:.3f} s of it "
        f"{event.call}{client}"
    )


def _operator_decides(event: node.OperatorDecides) -> str:
    return f"an operator wants branch {event.branch} {'committed' if event.commit else 'rolled back'}"


def _calls(event: node.OperatorCalls) -> str:
    about = f" of '{event.name}'" if event.name else ""
    return f"an operator makes call {event.call}: {event.operation}{about} {event.arguments}"


def _controls(event: node.OperatorControls) -> str:
    what = f"{'skip call' if event.control == 'skip' else 'go forward to call'} {event.tnx_id}"
    if event.reason:
        wanted = f"{event.member} to {what}" if event.member else "to reset the cluster calls"
        return f"an operator wanted {wanted}: {event.reason}"
    return f"an operator lets {event.member} {what}" if event.member else "an operator resets the cluster calls"


def _not_run(event: node.ActionNotRun) -> str:
    what = f"{event.operation} {event.name}".strip()
    of = f"call {event.tnx_id}" if event.tnx_id else "a call that is not recorded"
    return f"{'the undoing of ' if event.undo else ''}{what} has failed, for {of}: {event.reason}"


_SENTENCES: dict[type, Callable[..., str]] = {
    core.StateChanged: lambda e: f"state {e.state}",
    core.LinkSilent: lambda e: f"nothing has come from {e.peer} for {e.seconds:.2f} s; it is dialled anew",
    core.FollowingPrimary: lambda e: f"following {e.primary}",
    core.PrimarySilent: lambda e: f"{e.primary} is silent, asking to be attached again",
    core.RefusedByPrimary: lambda e: f"{e.primary} refused: {e.reason}",
    core.Detached: lambda e: f"detaching from {e.primary}: {e.reason}",
    core.EventsDiscarded: lambda e: f"discarding events after {e.last}, which the primary does not have",
    core.ResyncBegun: lambda e: "resynchronising queue by queue",
    core.OverwritingRefused: lambda e: e.reason,
    core.RecordRefused: lambda e: e.reason,
    core.NoMember: lambda e: e.reason,
    core.MembersChanged: lambda e: f"change {e.number} of the members: {e.change}; the members are {e.members}",
    core.StoreFailed: lambda e: f"the store failed: {e.reason}",
    core.SteppingDown: lambda e: f"stepping down: {e.reason}",
    core.HandingOver: lambda e: e.reason,
    core.ClientsHandedOver: _clients_handed_over,
    core.SuccessorRefused: lambda e: f"{e.backup} asks to take over: {e.reason}",
    core.BackupAttached: lambda e: f"backup {e.backup} attached at {e.common}, guard at {e.guard}",
    core.BackupResyncs: lambda e: f"backup {e.backup} resynchronises queue by queue",
    core.BackupReady: lambda e: f"backup {e.backup} is ready",
    core.OutOfReadySet: lambda e: f"{e.member} is out of the ready set",
    core.BackupSilent: lambda e: f"backup {e.backup} is silent",
    core.ClientsSlowed: lambda e: (
        f"joiner {e.joiner} lacks {e.lacking} events and does not catch up: clients are slowed until it has"
    ),
    core.JoinerTooSlow: lambda e: (
        f"joiner {e.joiner} was without progress for {e.seconds:.1f} s, and is not ready while it is so slow: "
        f"its disk or the network takes too long for a prepare_timeout of {e.most:g} s"
    ),
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
    link_events.AddressDiffers: lambda e: (
        f"the record has other nodes look for {e.node} at {e.listed}, and this node's file lets it listen on {e.own}: "
        "change the file, or the record with `txha member move`"
    ),
    node.NodeFailed: lambda e: e.reason,
    node.AllReady: lambda e: f"all {e.nodes} nodes are ready again",
    node.TooFewReady: lambda e: shortage(e.ready, e.nodes, e.min_ready) or "",
    node.OperatorDecides: _operator_decides,
    node.OperatorCalls: _calls,
    node.OperatorControls: _controls,
    node.ActionNotRun: _not_run,
    node.CallsNotKept: lambda e: f"no cluster call is run: {e.reason}",
    node.ListenerNotOpen: lambda e: f"listener '{e.listener}' is not open yet: {e.reason}",
    node.UserChanged: lambda e: (
        f"an operator asks for {e.operation} of {e.login!r}" + (f", as {e.by!r} from {e.address}" if e.by else "")
    ),
    http_events.HttpDoorEnded: lambda e: (
        f"the HTTP door (process {e.process}) has ended with status {e.status}; another one is started in "
        f"{e.seconds:g} s"
    ),
    http_events.HttpDoorListens: lambda e: f"operators are answered by HTTP at {e.addresses}",
    http_events.HttpDoorShut: lambda e: (
        f"the HTTP door cannot listen: {e.reason}; choose another http.port or http.host"
    ),
    http_events.HttpDoorFailed: lambda e: f"a request ({e.method}) has failed in the HTTP door: {e.reason}",
    http_events.HttpDoorUnstarted: lambda e: (
        f"the HTTP door cannot be started ({e.reason}); it is tried again in {e.seconds:g} s"
    ),
    node.UsersTakenOver: lambda e: (
        f"the cluster keeps its users itself from here on: {e.taken} of this node's configuration"
    ),
    node.UsersUnread: lambda e: e.reason,
    node.BrokerWaited: lambda e: f"waiting for the host broker to connect to {e.socket}",
    node.BrokerAttached: lambda e: f"the host broker {e.broker} is attached",
    node.BrokerRefused: lambda e: f"closing the connection with a host broker: {e.reason}",
    node.FilesLimited: lambda e: f"the limit of open files stays at {e.limit}: {e.reason}",
    node.ConnectionsRefused: _refused,
    node.MemoryShort: _memory_short,
    node.MemoryEnough: lambda e: f"clients hold {e.held} bytes of memory, less than {e.low}: publishers go on",
    node.GreedyClientClosed: _greedy_client_closed,
    node.DiskShort: _disk_short,
    node.DiskEnough: lambda e: f"{e.free} bytes are free on the disk of {e.directory}: publishers go on",
    node.DiskUnread: lambda e: f"how much is free on the disk of {e.directory} cannot be read: {e.reason}",
    node.StrangersClosed: lambda e: (
        f"connections that have not logged in are closed, {e.closed} so far, now one from {e.address}: {e.reason}"
    ),
    passing_events.PassingRefused: lambda e: (
        f"a client from {e.address} is not passed on{f' to {e.primary}' if e.primary else ''}: {e.reason}"
        f"{_unsaid(e.unsaid)}"
    ),
    tls_events.CertificateInForce: lambda e: (
        f"the {'former certificate is in force again' if e.undone else 'certificate that was read is in force'}, and "
        f"expires at {e.not_after}"
    ),
    tls_events.CertificateUnread: lambda e: f"the HTTP door cannot use a certificate: {e.reason}",
    tls_events.TlsRefused: _tls_refused,
    tls_events.CertificateExpires: lambda e: (
        f"{e.file} is valid until {e.at}, {e.days} days from now: renew it and load it anew; connections that stand go "
        "on then, and none is made with it any more"
    ),
    node.FilesShort: lambda e: (
        f"{e.clients} clients fit in the limit of {e.limit} open files, and amqp.max_connections is "
        f"{e.max_connections}: allow {e.needed} open files (ulimit -n, LimitNOFILE), or fewer connections"
    ),
    node.LoginsRefused: _logins,
    node.UnsupportedAccepted: lambda e: f"{e.what} for {e.kind} '{e.name}' is accepted and has no effect",
    node.PeerRefused: _peer_refused,
    link_events.PeerNowhere: lambda e: f"{e.peer} cannot be dialled: no host can be called {e.host!r}; say where it is",
    link_events.PeerMute: lambda e: f"{e.peer} does not greet within {e.seconds:g} s; it is dialled anew",
    node.ReaderRefused: _reader_refused,
    node.ReaderUnanswered: lambda e: f"a reader cannot be answered{_unsaid(e.unsaid)}: {e.kind}: {e.reason}",
    node.LogUnread: lambda e: e.reason,
    node.RecordUnread: lambda e: e.reason,
    node.OperatorGone: lambda e: f"an administration connection ended: {e.reason}",
    node.UnexpectedError: lambda e: f"{e.kind}: {e.reason}",
    node.LoopError: lambda e: e.reason,
    node.LongTurn: _long_turn,
    node.RenewedMeanwhile: lambda e: (
        f"the event loop completed no turn for {e.seconds:.3f} s; the coordination process renewed the lease meanwhile"
    ),
}
