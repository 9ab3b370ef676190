"""What client and broker agree on before a connection is open (AMQP 0-9-1, 2.2.4; texts and limits as RabbitMQ)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from pamqp.commands import Connection

from broker_plugin.amqp.protocol.sasl import mechanisms
from broker_plugin.amqp.protocol.settings import FRAME_MIN_SIZE, AmqpSettings
from broker_plugin.embedded.errors import AmqpError
from txobserver.release import VERSION
from txobserver.table import Table

AWAIT_HEADER, AWAIT_START_OK, AWAIT_TUNE_OK = "await header", "await start-ok", "await tune-ok"
AWAIT_OPEN, OPEN, LEAVING, CLOSING, CLOSED = "await open", "open", "leaving", "closing", "closed"

CONNECTION_TABLE: Table[str, str] = Table(
    "connection",
    AWAIT_HEADER,
    {
        (AWAIT_HEADER, "header"): AWAIT_START_OK,
        (AWAIT_START_OK, "start-ok"): AWAIT_TUNE_OK,
        (AWAIT_TUNE_OK, "tune-ok"): AWAIT_OPEN,
        (AWAIT_OPEN, "open"): OPEN,
        (OPEN, "close received"): LEAVING,
        **{(state, "close sent"): CLOSING for state in (AWAIT_START_OK, AWAIT_TUNE_OK, AWAIT_OPEN, OPEN, LEAVING)},
        **{
            (state, "ended"): CLOSED
            for state in (AWAIT_HEADER, AWAIT_START_OK, AWAIT_TUNE_OK, AWAIT_OPEN, OPEN, LEAVING, CLOSING, CLOSED)
        },
    },
)

SHOWN = {AWAIT_START_OK: "starting", AWAIT_TUNE_OK: "tuning", AWAIT_OPEN: "opening", OPEN: "running"}
"""What RabbitMQ calls these states in its texts."""

SERVER_PROPERTIES: Mapping[str, Any] = {
    "product": "txha",
    "version": VERSION,
    "platform": "Python",
    "copyright": "The txha authors",
    "information": "Licensed under Apache-2.0",
    "capabilities": {
        "authentication_failure_close": True,
        "basic.nack": True,
        "connection.blocked": True,
        "consumer_cancel_notify": True,
        "dtx": True,
        "exchange_exchange_bindings": True,
        "per_consumer_qos": True,
        "publisher_confirms": True,
    },
}


class History(NamedTuple):
    """What tells two histories of one cluster apart; 0 is not told.

    ``generation``: that of the primary. ``loss_accepted``: the last one for whose promotion an operator accepted the
    loss of data, or may have. Places of messages that were given before that may have been given again since.
    """

    generation: int = 0
    loss_accepted: int = 0


UNTOLD = History()
"""Of a broker that stands alone."""


def start(
    cluster: str = "", cluster_id: str = "", history: History = UNTOLD, certified: str | None = None
) -> Connection.Start:
    """connection.start. ``cluster`` is told as RabbitMQ tells it, so that a client knows two ways to one broker.

    An operator may have given the name twice: ``cluster_id``, which is this broker's own, tells two clusters apart.
    ``certified``: whom the client's certificate stands for.
    """
    known = {"cluster_name": cluster, "cluster_id": cluster_id, **history._asdict()}
    named = {name: told for name, told in known.items() if told}
    return Connection.Start(0, 9, {**SERVER_PROPERTIES, **named}, mechanisms(certified), "en_US")


def capabilities(start_ok: Connection.StartOk) -> Mapping[str, Any]:
    """What the client says that it can do."""
    table = start_ok.client_properties.get("capabilities")
    return table if isinstance(table, dict) else {}


def tune(settings: AmqpSettings) -> Connection.Tune:
    """connection.tune."""
    return Connection.Tune(settings.channel_max, settings.frame_max, settings.heartbeat)


def check_tune(tune_ok: Connection.TuneOk, settings: AmqpSettings) -> None:
    """530 for limits beyond those that were offered."""
    _check_limit("frame_max", tune_ok.frame_max, FRAME_MIN_SIZE, settings.frame_max)
    _check_limit("channel_max", tune_ok.channel_max, 1, settings.channel_max)


def _check_limit(what: str, value: int, least: int, most: int) -> None:
    if value and value < least:
        raise AmqpError(530, f"negotiated {what} = {value} is lower than the minimum allowed value ({least})")
    if most and (not value or value > most):
        shown = f"{value} (no limit)" if not value else str(value)
        raise AmqpError(530, f"negotiated {what} = {shown} is higher than the maximum allowed value ({most})")
