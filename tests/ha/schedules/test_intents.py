"""Schedules of intents that the simulator found: what a call has done and nothing records is undone, whatever came."""

from __future__ import annotations

import pytest

from ha.calls.answers import CallUnknown
from tests.ha.calls.test_calls import started
from tests.ha.schedules.test_calls import at_head
from tests.support.memory_calls import call_id
from txobserver.calls import FAST_FORWARD, RESET, SKIP


@pytest.mark.parametrize("control", [RESET, FAST_FORWARD, SKIP])
def test_what_was_to_undo_an_intent_is_let_go(control: str) -> None:
    """An action hangs until the history has passed its call by, and an operator lets the node off the later call of its
    name: the node does what that call would have undone itself."""
    cluster = started(ticket_timeout=1.0, calls_kept=1)
    initiator, other = cluster.backups()
    initiator.surroundings.hangs = lambda action: not action.tnx_id and not action.undo
    cluster.call(initiator, 1, "aborted")
    cluster.run(lambda: initiator.core.calls.hands.running is not None)
    for number, name in ((2, "x"), (3, "y"), (4, "z")):
        cluster.call(other, number, f"l{number}", need=2, name=name)
        cluster.answered(number)
    assert cluster.tnx_of(1) == 0 and initiator.core.replica.contents.calls.purged_to > 0
    of_it = ("", 0) if control == RESET else (initiator.name, cluster.tnx_of(2))
    cluster.control(other, 90, control, *of_it)
    assert cluster.answers[90] is None
    initiator.surroundings.hangs = lambda action: False
    cluster.run(lambda: at_head(cluster))
    assert cluster.level(initiator.name) == "" and cluster.level(other.name) == "l2"
    assert cluster.answered(1) == CallUnknown(call_id(1)), "whether it was recorded is remembered no more"
