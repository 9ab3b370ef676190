"""Whom the certificate of a client stands for."""

from __future__ import annotations

import asyncio

from broker_plugin.amqp.protocol.introductions import Introduced
from broker_plugin.amqp.protocol.settings import AmqpSettings
from broker_plugin.tls.peer_certificate import certificate_of
from recovery.certificate_names import names_a_client


def certified_user(transport: asyncio.BaseTransport, settings: AmqpSettings) -> str | None:
    """Of the verified certificate of this client; None where it has given none, or none for a user.

    One that says that it is a node's or a reader's, or of another cluster, stands for no user here.
    """
    source = settings.certificate_login_from
    found = None if source is None else certificate_of(transport)
    if source is None or found is None or not names_a_client(found.uris, settings.cluster):
        return None
    return found.user(source)


def introduced_user(introduced: Introduced, settings: AmqpSettings) -> str | None:
    """Of one that another node passes on: as that node has verified it. The certificate here is the node's own."""
    return None if settings.certificate_login_from is None else introduced.way.certified
