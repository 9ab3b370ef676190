"""What a node's configuration means for those who serve its clients."""

from __future__ import annotations

import logging

import msgspec

from broker_plugin.amqp.protocol.settings import AmqpSettings
from broker_plugin.embedded.unsupported import Unsupported
from broker_plugin.logs.events import LoginsRefused, UnsupportedAccepted
from broker_plugin.logs.formats import tell
from broker_plugin.node.amqp_config import Amqp
from broker_plugin.node.config import NodeConfig
from broker_plugin.node.descriptors import UNAUTHENTICATED_PART
from ha.messages.alarms import ALARMS_FEATURE
from ha.messages.greeting import INTRODUCTIONS, INTRODUCTIONS_TLS, Hello

log = logging.getLogger("txha.node")


def tell_refused_login(user: str, address: str, count: int, why: str) -> None:
    """Log it."""
    tell(log, logging.WARNING, LoginsRefused(user, address, count, why))


def meets_unsupported(config: NodeConfig) -> Unsupported:
    """What becomes of what RabbitMQ acts on and the broker does not."""

    def warned(kind: str, name: str, what: str) -> None:
        tell(log, logging.WARNING, UnsupportedAccepted(kind, name, what))

    return Unsupported(warned if config.unsupported == "warn" else None)


def features_for_clients(config: NodeConfig) -> list[str]:
    """What the node names in its greeting beside what its core knows.

    None of it where a host broker serves the clients: that may speak any protocol, and what it holds is not seen here.
    """
    if config.host is not None:
        return []
    return [ALARMS_FEATURE, INTRODUCTIONS, *([] if config.amqp.tls_port is None else [INTRODUCTIONS_TLS])]


def with_tls(hello: Hello, amqp: Amqp) -> Hello:
    """The same greeting, with where clients connect by TLS."""
    port = amqp.tls_port
    return hello if port is None else msgspec.structs.replace(hello, amqps_host=amqp.tls_host, amqps_port=port)


def amqp_settings(config: NodeConfig, cluster_id: str, users: dict[str, str], fit: int) -> AmqpSettings:
    """What connections of clients go by, where so many ``fit`` in the limit of open files."""
    amqp = config.amqp
    without_login = max(1, fit // UNAUTHENTICATED_PART)
    return AmqpSettings(
        cluster=config.cluster,
        cluster_id=cluster_id,
        users=users,
        heartbeat=amqp.heartbeat,
        frame_max=amqp.frame_max,
        channel_max=amqp.channel_max,
        max_connections=amqp.max_connections,
        max_unauthenticated=min(amqp.max_unauthenticated, without_login),
        max_unauthenticated_per_address=min(amqp.max_unauthenticated_per_address, max(1, without_login // 2)),
        handshake_timeout=amqp.login_seconds,
        certificate_login_from=None if amqp.client_certificates == "ignore" else amqp.certificate_login_from,
    )
