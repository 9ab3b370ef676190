"""What clients do, step by step. What RabbitMQ 3.10.8 answered is in ``rabbitmq_3_10.json`` (see ``play.py``)."""

from __future__ import annotations

from tests.broker_plugin.amqp.scenarios.consuming import CONSUMING
from tests.broker_plugin.amqp.scenarios.publishing import CONNECTIONS, PUBLISHING, TRANSACTIONS
from tests.broker_plugin.amqp.scenarios.queues import INVALID_ARGUMENTS, NAMES, declare_scenarios, lifetime_scenarios
from tests.broker_plugin.amqp.scenarios.routing import BINDINGS, EXCHANGES
from tests.broker_plugin.amqp.scenarios.steps import Step

SCENARIOS: dict[str, list[Step]] = {
    **declare_scenarios(True),
    **declare_scenarios(False),
    **lifetime_scenarios(True),
    **lifetime_scenarios(False),
    **NAMES,
    **INVALID_ARGUMENTS,
    **EXCHANGES,
    **BINDINGS,
    **CONSUMING,
    **PUBLISHING,
    **TRANSACTIONS,
    **CONNECTIONS,
}
