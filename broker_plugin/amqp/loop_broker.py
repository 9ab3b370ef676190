"""An embedded broker whose turns are those of an event loop."""

from __future__ import annotations

import base64
import uuid

from broker_plugin.embedded.broker import EmbeddedBroker
from broker_plugin.embedded.memory_budget import MemoryMarks
from broker_plugin.embedded.queues.windows import WindowLimits
from broker_plugin.embedded.transactions.branch_table import DtxLimits
from broker_plugin.embedded.unsupported import Unsupported
from broker_plugin.guard import Guard


def unique_name() -> str:
    """A text that is given once, as RabbitMQ makes them."""
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode()


def embedded_broker(
    guard: Guard,
    limits: WindowLimits | None = None,
    dtx_limits: DtxLimits | None = None,
    unsupported: Unsupported | None = None,
    marks: MemoryMarks | None = None,
) -> EmbeddedBroker:
    """A broker whose turns are those of the event loop that runs when it is used."""

    def schedule() -> None:
        guard.call_soon(broker.end_of_turn)

    broker = EmbeddedBroker(
        schedule, unique_name, limits or WindowLimits(), dtx_limits or DtxLimits(), unsupported, marks
    )
    return broker
