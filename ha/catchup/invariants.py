"""What must be so of a copy of the queues, at the primary and at the joiner (``txobserver.invariants``)."""

from __future__ import annotations

from ha.catchup.join_guard import JoinGuard
from ha.catchup.live_changes import LiveChanges
from ha.catchup.queue_replicator import QueueReplicator
from ha.catchup.replicating_subscription import ReplicatingSubscription
from ha.catchup.resync import Resync
from ha.catchup.throttle import Throttle
from ha.catchup.under_way import Portions, UnderWay
from ha.messages.sizes import ENTRY, message_bytes
from txobserver.events import TxToken
from txobserver.ids import id_text
from txobserver.invariants import WALKED, differ, rises
from txobserver.ports.store import END


def check_resync(resync: Resync) -> None:
    """The primary's end."""
    ended, walking, live = resync.ended_at, resync._walking, resync._live
    assert (ended is None) == (resync._ending is None), "P7: a copy ends without an end, or at no position"
    assert resync.held >= 0, f"P12: {resync.held} bytes are held for {resync._node}"
    assert resync._portion > 0, f"P12: {resync._node} is sent portions of {resync._portion} bytes"
    assert resync._window > 0, f"P12: {resync._node} has a window of {resync._window} bytes"
    assert resync._page_after >= -1, f"P7: a page begins behind {resync._page_after}"
    check_under_way(resync._under_way)
    check_portions(resync._portions)
    if not resync._marked:
        assert not resync._under_way.sent, f"P9: {resync._node} is sent a copy before its store is marked"
        assert not live.subscriptions, f"P9: the queues are walked before the store of {resync._node} is marked"
        assert ended is None, f"P9: the copy ends before the store of {resync._node} is marked"
    if ended is not None:
        assert ended <= resync._replica.applied.sequence, f"P7: the copy ends at {ended}, which is not applied"
        assert not live.subscriptions, "P7: changes go to a copy that has ended"
        assert not live.waiting, "P7: changes wait behind the end of a copy"
        assert walking is None, "P7: a copy that has ended walks on"
        assert not resync._to_walk or not resync._lacking, "P7: messages are asked for behind the end of a copy"
    if walking is not None:
        assert walking.queue in live.subscriptions, f"P7: queue {walking.queue} is walked, and not told of changes"
        last = resync._lacking[-1] if resync._lacking else -1
        assert last <= walking.cursor, f"P7: {last} is lacking, and the walk is at {walking.cursor}"
    assert walking is not None or not resync._asked, "P12: an answer of the joiner is waited for in no queue"
    _check_live(live)


def _check_live(live: LiveChanges) -> None:
    assert live.waiting >= 0, f"P12: {live.waiting} bytes of changes wait for a joiner"
    assert live._changed.keys() <= live.subscriptions.keys(), "P7: a queue has changed that is not copied"
    waits = sum(each.waiting for each in live._changed.values())
    assert live.waiting == waits, f"P12: {waits} bytes of changes wait, and {live.waiting} are counted"


def check_resync_deep(resync: Resync) -> None:
    """Each queue that is copied, and the sizes of what is under way."""
    under_way = resync._under_way
    assert under_way.bytes == sum(under_way._sizes), "P12: what is under way to a joiner is counted otherwise"
    assert all(size >= 0 for size in under_way._sizes), "P12: a part of less than nothing is under way"
    if len(resync._lacking) <= WALKED:
        assert rises(resync._lacking), "P8: what a joiner lacks is not in order"
    for queue, subscription in resync._live.subscriptions.items():
        assert subscription.queue == queue, f"P5: the changes of queue {subscription.queue} are told of queue {queue}"
        _check_subscription(subscription)
        known = resync._live._changed.get(queue, subscription)
        assert known is subscription, f"P7: queue {queue} is copied twice"
        assert queue in resync._live._changed or not subscription.waiting, f"P12: changes of queue {queue} never go"


def _check_subscription(subscription: ReplicatingSubscription) -> None:
    queue, cursor = subscription.queue, subscription.cursor
    assert -1 <= cursor <= END, f"P7: the walk of queue {queue} is at {cursor}"
    assert subscription.live == (cursor == END), f"P7: queue {queue} is live at {cursor}"
    size = sum(message_bytes(message) for _, _, message in subscription._added) + ENTRY * len(subscription._removed)
    assert subscription.waiting == size, f"P12: {size} bytes wait for queue {queue}, {subscription.waiting} are counted"
    assert all(offset <= cursor for offset, _, _ in subscription._added), f"P3: a message of {queue} is reported twice"
    assert all(offset <= cursor for offset, _ in subscription._removed), f"P7: {queue} loses what was not told of"
    assert differ(offset for offset, _ in subscription._removed), f"P3: a message leaves queue {queue} twice"
    assert differ(offset for offset, _, _ in subscription._added), f"P3: a message enters queue {queue} twice"


def check_under_way(under_way: UnderWay) -> None:
    """What was sent and not taken."""
    assert under_way.bytes >= 0, f"P12: {under_way.bytes} bytes are under way"
    assert under_way.taken >= 0, f"P12: a joiner has taken {under_way.taken} parts"
    assert under_way.sent >= under_way.taken, "P12: a joiner has taken more than it was sent"
    assert under_way._sizes or not under_way.bytes, f"P12: {under_way.bytes} bytes of no part are under way"


def check_portions(portions: Portions) -> None:
    """What is sent at a time."""
    assert portions._bytes >= 0, f"P12: a portion of {portions._bytes} bytes"
    assert portions._limit > 0, f"P12: portions have {portions._limit} bytes"
    assert portions._ends >= 0, f"P12: a portion ends with part {portions._ends}"
    check_throttle(portions._throttle)
    assert not portions._resting or not portions._throttle.working, "P12: a joiner rests while it works"


def check_throttle(throttle: Throttle) -> None:
    """When a joiner rests."""
    assert throttle._until >= 0, f"P12: a joiner rests until {throttle._until}"
    assert throttle._began is None or throttle._began >= 0, f"P12: a portion began at {throttle._began}"
    assert throttle._lag is None or throttle._lag >= 0, f"P12: a joiner lacks {throttle._lag}"


def check_guard(guard: JoinGuard) -> None:
    """Where a backup begins to count."""
    assert guard.at >= 0, f"P11: a backup counts from {guard.at} on"
    assert guard.passed(guard.at), f"P11: a backup at its guard {guard.at} does not count"
    assert not guard.passed(guard.at - 1), f"P11: a backup before its guard {guard.at} counts"


def check_replicator(replicator: QueueReplicator) -> None:
    """The joiner's end."""
    page, ended = replicator._page, replicator.ended
    assert replicator.taken >= 0, f"P12: {replicator.taken} parts were taken"
    assert replicator._session > 0, f"P10: a copy of attachment {replicator._session}"
    assert replicator._forwarded.keys() == replicator._buffers.keys(), "P1: a transaction comes without its events"
    if page is None:
        assert not replicator._wanted, "P12: messages are wanted of no page"
    else:
        assert replicator._parts, "P12: a page is worked on that was taken"
        assert replicator._parts[0] is page, "P7: another page is worked on than comes next"
        assert page.after <= replicator._compared, f"P7: a page was compared up to {replicator._compared}"
        assert len(replicator._wanted) <= len(page.ids), "P7: more messages are wanted than the page has"
    if ended is not None:
        assert not replicator._parts, "P7: parts come behind the end of a copy"
        assert page is None, "P7: a page is worked on behind the end of a copy"
        assert ended.history, "P10: a copy ends in no generation"
        assert ended.position.generation >= ended.history[-1].generation, f"P10: a copy ends at {ended.position}"
        numbers = replicator._configuration.numbers()
        assert numbers == replicator._queues, "P7: other queues were copied than are declared"


def check_replicator_deep(replicator: QueueReplicator) -> None:
    """Each transaction that was sent along."""
    known = replicator._replica.contents.queues.numbers()
    assert replicator._queues <= known, "P7: a queue was compared that is not there"
    for tx, events in replicator._forwarded.items():
        buffer = replicator._buffers[tx]
        assert buffer.tx == tx, f"P1: transaction {id_text(buffer.tx)} is copied as {id_text(tx)}"
        assert events, f"P1: transaction {id_text(tx)} is copied without events"
        in_order = rises(sequence for sequence, event in events if type(event) is not TxToken)
        assert in_order, f"P7: the events of {id_text(tx)} came out of order"  # its name comes first (TxBuffer.since)
        assert differ(sequence for sequence, _ in events), f"P3: an event of {id_text(tx)} came twice"
        assert len(buffer.events) < len(events), f"P1: {id_text(tx)} has more events than came, its opening among them"
        assert events[0][0] == buffer.opened, f"P1: transaction {id_text(tx)} begins with another event"
