"""Whom the certificate of a client stands for."""

from __future__ import annotations

import asyncio

from broker_plugin.amqp.protocol.settings import AmqpSettings
from broker_plugin.tls.names import names_a_client
from broker_plugin.tls.peer_certificate import certificate_of


def certified_user(transport: asyncio.BaseTransport, settings: AmqpSettings) -> str | None:
    """Of the verified certificate of this client; None where it has given none, or none for a user.

    One that says that it is a node's or a reader's, or of another cluster, stands for no user here.
    """
    found = certificate_of(transport)
    if found is None or not names_a_client(found.uris, settings.cluster):
        return None
    return found.user(settings.certificate_login_from)
