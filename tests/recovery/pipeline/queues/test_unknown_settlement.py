"""A settlement of which it is not known whether it happened is told: the query ends, and its next start asks again."""

from __future__ import annotations

import pytest
from pika.adapters.blocking_connection import BlockingChannel

from python_tests.harness.cluster import LocalCluster
from recovery.dtx.errors import OutcomeUnknown
from recovery.dtx.with_pika import DtxConnection
from recovery.pipeline.queues.options import QueueSourceOptions
from recovery.pipeline.queues.queue_intake import QueueIntake
from txobserver.xid import Xid


def test_a_settlement_whose_outcome_is_unknown_ends_the_query(
    cluster: LocalCluster, channel: BlockingChannel, queue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    channel.confirm_delivery()
    channel.basic_publish("", queue, b"a")
    intake = QueueIntake(QueueSourceOptions(url=",".join(cluster.urls), queue=queue, patience=10), (), 10)
    places = intake.take(1, wait=True)

    def unheard(broker: DtxConnection, xid: Xid | None = None) -> None:
        raise OutcomeUnknown("the outcome of the settlement is unknown", None)

    with monkeypatch.context() as patched, pytest.raises(OutcomeUnknown):
        patched.setattr(DtxConnection, "tpc_commit", unheard)
        intake.settle(places)
    assert intake.settlements.done == set(places), "until a record says more"
    intake.close()
