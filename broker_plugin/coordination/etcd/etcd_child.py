"""The process that keeps the coordination record in etcd for one node: it asks etcd, renews, and tells of changes.

In a process of its own, as with a file: it renews the lease of a primary in the middle of a long turn
(docs/decisions/renewed-in-a-process.md). What is told of changes goes through a pipe, as whole numbers: versions.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress

from broker_plugin.coordination.coordination_process import serve
from broker_plugin.coordination.etcd.change_stream import ChangeStream
from broker_plugin.coordination.etcd.etcd_coordination import ATTEMPT_SECONDS, EtcdCoordination
from broker_plugin.coordination.etcd.place import SCHEME, EtcdPlace
from broker_plugin.coordination.etcd.version_pipe import VersionWriter
from ha.membership.record import Coordination

CALL_PART = 0.4
"""Of the time in which the node waits for an answer: a call may have to wait for a renewal that is on its way"""
LEAST_ATTEMPT_SECONDS = 0.5
"""In which one member has to answer, where the lease is renewed more often"""


def main(address: str, cluster: str, answer_seconds: str, told: str, *renewing: str) -> None:
    """Serve the record; ``told``: descriptor of the pipe for versions."""
    place = EtcdPlace.of_url(address.removeprefix(SCHEME))
    every = float(renewing[1]) if renewing else ATTEMPT_SECONDS
    attempt = max(LEAST_ATTEMPT_SECONDS, every)
    stream = ChangeStream(place, VersionWriter(int(told)).write, attempt)

    def made() -> Coordination:
        stream.start()
        return EtcdCoordination(place, cluster, seconds=CALL_PART * float(answer_seconds), attempt_seconds=attempt)

    serve(made, *renewing)
    with suppress(Exception):
        stream.close()
    os._exit(0)  # gRPC's own threads are not waited for


if __name__ == "__main__":
    main(*sys.argv[1:])
