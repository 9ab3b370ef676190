"""Points of a driver: it tells each, and waits there until it is told how to go on.

Besides the steps that source and sink know themselves, these are its durable requests: not sent yet, sent and not
answered, answered. They are found where a request leaves the client, so nothing of the product is in two versions.
"""

from __future__ import annotations

import contextlib
from multiprocessing.connection import Connection
from typing import Any

from python_tests.suites.spark_queues.drawn.case import (
    ANSWERED,
    COMMIT,
    PREPARE,
    RECORD,
    SENT,
    SETTLEMENT,
    UNSENT,
    request,
)
from recovery.dtx import with_pika
from recovery.dtx.with_pika import DtxConnection
from recovery.pipeline.queues import batch_decisions, names, sink, source
from txobserver import dtx_wire as dtx
from txobserver.xid import Xid

GO, LOSE, END = "go", "lose", "end"
"""How to go on: as if nothing were; with a connection that was lost; not at all."""

AT, FAILED, RAN = "at", "failed", "ran"
"""What a driver tells: a point; that the query has failed, with the error; that it ran dry after so many batches."""


class Points:
    """The driver's end of ``told``."""

    def __init__(self, told: Connection) -> None:
        self._told = told

    def tell(self, kind: str, what: object, xid: Xid | None = None) -> str:
        """How to go on. Raises SystemExit if that is not at all."""
        self._told.send((kind, what, xid))
        answer: str = self._told.recv()
        if answer == END:
            raise SystemExit
        return answer

    def at(self, point: str, xid: Xid | None = None) -> str:
        """The same for a point."""
        return self.tell(AT, point, xid)

    def install(self) -> None:
        """In this process, for good."""
        for module in (sink, source, batch_decisions):
            module.reached = self.at  # type: ignore[attr-defined]
        asked = DtxConnection._ask

        def ask(broker: DtxConnection, method: dtx.DtxMethod) -> dtx.DtxMethod:
            what = named(method)
            return asked(broker, method) if what is None else self._ask(broker, method, what)

        DtxConnection._ask = ask  # type: ignore[method-assign]

    def _ask(self, broker: DtxConnection, method: Any, what: str) -> dtx.DtxMethod:
        xid = Xid(*method.xid)
        answers: list[Any] = []
        reply = with_pika._CARRIED[method.index + 1]
        self.at(request(what, UNSENT), xid)
        broker.channel._impl._rpc(with_pika._CARRIED[method.index](method), answers.append, [reply])
        broker.connection._flush_output()
        if self.at(request(what, SENT), xid) == LOSE:
            lose(broker)
        broker.channel._flush_output(lambda: bool(answers))
        self.at(request(what, ANSWERED), xid)
        found: dtx.DtxMethod = answers[0].method.method
        return found


def named(method: dtx.DtxMethod) -> str | None:
    """The request, if it is one of those that have points."""
    if isinstance(method, dtx.Prepare):
        return PREPARE
    if not isinstance(method, dtx.Commit):
        return None
    if method.xid.global_id.startswith(b"settle."):
        return SETTLEMENT
    return RECORD if method.xid.branch_id == names.RECORD else COMMIT


def lose(broker: DtxConnection) -> None:
    """End the connection, and with it what has arrived on it and was not looked at."""
    end = broker.connection._impl._transport._sock
    with contextlib.suppress(OSError):
        while end.recv(1 << 16):
            continue
    with contextlib.suppress(OSError):
        end.shutdown(2)
