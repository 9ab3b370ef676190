"""What must be so of the primary's end of its backups' attachments (``txobserver.invariants``)."""

from __future__ import annotations

from ha.apply.replica import Replica
from ha.catchup.invariants import check_guard, check_resync, check_resync_deep, check_throttle
from ha.primary.attachments import Attachments
from ha.primary.backup_session import BackupSession
from ha.primary.backups import Backups
from ha.primary.joins import NEVER
from ha.primary.tx_tracker import TxTrackers
from ha.watch import Watch
from txobserver.invariants import WALKED, rises


def check_backups(backups: Backups) -> None:
    """Who is attached, and what each has got."""
    attachments, replica, point = backups.attachments, backups._replica, backups._primary.point
    assert backups.sessions is attachments.sessions, "P11: other backups are sent the stream than are attached"
    assert attachments.generation == backups._primary.generation, f"P10: attached to {attachments.generation}"
    copies = sum(session.resync is not None for session in attachments.sessions.values())
    copying = sum(
        session.resync is not None and session.resync in attachments.copies for session in attachments.sessions.values()
    )
    assert copying == copies, f"P7: {copies} copies are made, and {copying} are told of what is applied"
    assert len(attachments.copies) == copies, f"P12: {len(attachments.copies)} copies are told, {copies} are made"
    assert attachments.parked.keys().isdisjoint(attachments.sessions), "P9: a join waits, and its node is attached"
    for node, join in attachments.parked.items():
        assert join.member.node == node, f"P9: the join of {join.member} waits as that of {node}"
        assert join.session > 0, f"P10: {node} asks for attachment {join.session}"
    for node, session in attachments.sessions.items():
        assert session.member.node == node, f"P11: {session.member} is attached as {node}"
        assert node != attachments.name, f"P11: {node} is attached to itself"
        assert session.generation == attachments.generation, f"P10: {node} is attached to {session.generation}"
        check_session(session, replica, point.sequence)
    assert attachments.name not in attachments.participants()[1:], "P11: the primary takes part twice"
    assert attachments.durable_everywhere() <= replica.durable, "P11: the stream is durable beyond the primary's disk"
    check_watch(backups.watch)


def check_session(session: BackupSession, replica: Replica, commit: int) -> None:
    """One attachment."""
    node, sent, resync = session.member.node, session.sent, session.resync
    assert session.number > 0, f"P10: {node} is attached as number {session.number}"
    assert session.acknowledged <= sent, f"P11: {node} has {session.acknowledged}, and was sent up to {sent}"
    assert sent <= replica.tail.sequence, f"P11: {node} was sent up to {sent}, and the stream ends at {replica.tail}"
    assert session._told <= commit, f"P11: {node} is told that {session._told} has passed, and {commit} has"
    assert session._bytes >= 0, f"P12: {session._bytes} bytes are under way to {node}"
    assert session._portion_bytes >= 0, f"P12: a portion of {session._portion_bytes} bytes goes to {node}"
    assert session._in_flight or not session._bytes, f"P12: {session._bytes} bytes of no frame are under way to {node}"
    assert session._portion_from <= sent, f"P12: a portion for {node} begins at {session._portion_from}"
    check_guard(session.guard)
    check_throttle(session._throttle)
    _check_trackers(session.trackers, node)
    if resync is not None:
        assert session.acknowledged == -1, f"P9: {node} copies, and has acknowledged {session.acknowledged}"
        assert session.guard.at == NEVER, f"P9: {node} copies, and counts from {session.guard.at} on"
        assert not session.past_guard, f"P9: {node} copies, and counts"
        assert not session._in_flight, f"P7: {node} copies, and is sent the stream"
        assert resync._session == session.number, f"P7: {node} gets the copy of attachment {resync._session}"
        assert resync._generation == session.generation, f"P10: {node} gets a copy of {resync._generation}"
        check_resync(resync)
    else:
        assert session.acknowledged >= 0, f"P11: {node} has acknowledged {session.acknowledged}"
        assert session.guard.at <= replica.tail.sequence, f"P12: {node} shall count from {session.guard.at} on"
    if session._in_flight:
        first, last = session._in_flight[0][0], session._in_flight[-1][0]
        assert first > session.acknowledged, f"P12: {node} has {first}, which counts as under way"
        assert last == sent, f"P7: {node} was sent up to {sent}, and {last} is under way"


def _check_trackers(trackers: TxTrackers, node: str) -> None:
    assert trackers._prepared.keys() <= trackers._queues.keys(), f"P9: {node} is held back by no queue"
    assert trackers.clear == (not trackers._queues), f"P9: {node} may be ready, and is held back"
    assert len(trackers) >= len(trackers._queues), f"P9: {node} is held back by a transaction without a queue"
    assert trackers.clear or trackers._decided or trackers._prepared, f"P12: nothing will ever let {node} be ready"


def check_backups_deep(backups: Backups) -> None:
    """All that is under way, and each tracker."""
    for session in backups.sessions.values():
        node = session.member.node
        assert session._bytes == sum(size for _, size in session._in_flight), f"P12: {node} has other bytes under way"
        assert rises(last for last, _ in session._in_flight), f"P7: {node} is sent frames out of order"
        _check_each_tracker(session.trackers, node)
        if session.resync is not None:
            check_resync_deep(session.resync)
    _check_awaited(backups.attachments)


def _check_each_tracker(trackers: TxTrackers, node: str) -> None:
    if len(trackers._queues) > WALKED:
        return
    decided = trackers._decided
    assert all(trackers._queues.values()), f"P9: {node} is held back by a transaction without a queue"
    assert all(sequence > 0 for sequence in trackers._prepared.values()), f"P9: {node} waits for no prepare"
    assert all(decided[0] <= each for each in decided), f"P9: {node} is let go by a later decision first"
    assert all(sequence > 0 for sequence, _ in decided), f"P9: {node} waits for no decision"
    both = trackers._prepared.keys() & {tx for _, tx in decided}
    assert not both, f"P6: {node} waits for the decisions of {both}, which have come"


def _check_awaited(attachments: Attachments) -> None:
    """Every backup past its guard is asked for its vote, and waited for."""
    taking_part = attachments.participants()
    for node, session in attachments.sessions.items():
        waited = attachments.awaited(session)
        assert not session.past_guard or waited, f"P11: {node} counts, and the primary does not wait for it"
        assert not session.past_guard or node in taking_part, f"P9: {node} is past its guard, and takes no part"
        assert attachments.current(node, session.number) is session, f"P10: {node} is attached twice"


def check_watch(watch: Watch) -> None:
    """Which time counts against whom."""
    assert watch.passed_over >= 0, f"P12: {watch.passed_over} s are held against no backup"
    assert watch._longest > 0, f"P12: steps of {watch._longest} s count"
    assert watch._was_long or not watch.unread, "P12: no backup is judged after a short step"
