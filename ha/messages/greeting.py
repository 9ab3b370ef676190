"""Greeting: the first message of every connection between nodes, both ways."""

from __future__ import annotations

import msgspec

WIRE_VERSION = 4


class Hello(msgspec.Struct, array_like=True, tag=0):
    """First message of every connection, both ways: who this is, and where its clients connect.

    Another version or cluster is refused with a sentence, and so is a cluster of the same name that was founded apart
    (``cluster_id``, see ``ha.membership.record.Record``).
    """

    version: int
    cluster: str
    node: str
    amqp_host: str
    amqp_port: int
    cluster_id: str = ""
