"""One walked queue: what a walk tells of changes to what it has passed."""

from __future__ import annotations

from ha.catchup.replicating_subscription import PAGE, ReplicatingSubscription
from txobserver.events import Message
from txobserver.ports.store import MemoryBase, Meta
from txobserver.state.contents import Contents


def test_what_stood_at_the_cursor_itself_goes_live() -> None:
    """P12: else the joiner keeps it, its digest differs at the end, and the copy begins anew."""
    contents = Contents(MemoryBase(), Meta())
    contents.queues.add(1)
    for number in range(1, PAGE + 2):
        contents.queues.insert(1, number, number, Message("", "q", b"", b"m"))
    walk = ReplicatingSubscription(1)
    walk.next_page(contents)
    assert walk.cursor == PAGE
    walk.gone([(offset, offset) for offset in (PAGE - 1, PAGE, PAGE + 1)])
    assert [removed for _, removed in walk.take_changes(1 << 20)] == [[(PAGE - 1, PAGE - 1), (PAGE, PAGE)]]
