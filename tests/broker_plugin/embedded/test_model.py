"""The embedded broker against its model: at rest, through take-overs, and on the cores of a cluster of three."""

from __future__ import annotations

from unittest.mock import patch

import pytest

from broker_plugin.embedded.operations import queue_deletions
from broker_plugin.embedded.queues import durable_queue, turn
from broker_plugin.embedded.queues.windows import WindowLimits
from tests.broker_plugin.embedded.broker_machine import BrokerMachine
from tests.broker_plugin.embedded.cluster_harness import ClusterHarness
from tests.broker_plugin.embedded.harness import Harness
from tests.broker_plugin.embedded.takeover_machine import TakeOverMachine
from tests.support.examples import examples

pytestmark = pytest.mark.fuzz


class ClusterMachine(TakeOverMachine):
    """The broker of the primary of a cluster; a take-over kills its node."""

    def make_harness(self) -> Harness:
        return ClusterHarness(WindowLimits(3, 8))


class PiecesMachine(BrokerMachine):
    """Turns that take two steps: whatever takes more is done in pieces."""

    def __init__(self) -> None:
        self._turns = patch.object(turn, "STEPS", 2)
        self._turns.start()
        super().__init__()

    def teardown(self) -> None:
        try:
            super().teardown()
        finally:
            self._turns.stop()


class DrainingMachine(TakeOverMachine):
    """Turns that take two steps, purges that take out piece by piece, deletions that name what is held by its end."""

    def __init__(self) -> None:
        self._patches = [patch.object(module, "SPARED_MOST", -1) for module in (durable_queue, queue_deletions)]
        self._patches.append(patch.object(turn, "STEPS", 2))
        for each in self._patches:
            each.start()
        super().__init__()

    def teardown(self) -> None:
        try:
            super().teardown()
        finally:
            for each in self._patches:
                each.stop()


PiecesMachine.TestCase.settings = examples(50, stateful_step_count=40)
TestPiecesLikeTheModel = pytest.mark.plain(PiecesMachine.TestCase)
DrainingMachine.TestCase.settings = examples(50, stateful_step_count=40)
TestDrainingLikeTheModel = pytest.mark.plain(DrainingMachine.TestCase)
BrokerMachine.TestCase.settings = examples(120, stateful_step_count=50)
TakeOverMachine.TestCase.settings = examples(80, stateful_step_count=50)
ClusterMachine.TestCase.settings = examples(40, stateful_step_count=40)
TestBrokerLikeItsModel = BrokerMachine.TestCase
TestTakeOverLikeTheModel = TakeOverMachine.TestCase
TestClusterLikeTheModel = ClusterMachine.TestCase
