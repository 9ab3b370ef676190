"""Refused connections are told at once and then seldom, and none of them is forgotten."""

from __future__ import annotations

import pytest

from broker_plugin.logs.seldom import QUIET_SECONDS
from broker_plugin.node.refusals import PeerRefusals


class Time:
    now = 100.0


@pytest.mark.parametrize("dialled", ["", "b"])
def test_a_line_counts_those_that_none_was_told_of(dialled: str, caplog: pytest.LogCaptureFixture) -> None:
    """Of each peer, and of those that have not said who they are, which are the dialled one's where that is known."""
    refusals = PeerRefusals(lambda: Time.now, dialled)
    told = []
    for later, peer in ((0.0, ""), (1.0, ""), (1.0, "c"), (1.0, ""), (QUIET_SECONDS - 3.1, ""), (0.1, ""), (9.0, "c")):
        Time.now += later
        refusals.refused(peer, None, "it keeps silent")
        told.append([(each.msg.event.peer, each.msg.event.unsaid) for each in caplog.records])  # type: ignore[attr-defined]
        caplog.clear()
    assert told == [[(dialled, 0)], [], [("c", 0)], [], [], [(dialled, 3)], [("c", 0)]]
