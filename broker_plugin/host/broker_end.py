"""The broker's end, for a broker written in Python: attaches to a node, and speaks for it with the node's ledger.

A broker in another language speaks the same protocol (``broker_plugin.host.wire``, docs/hosts.md).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol, cast

from broker_plugin.host.from_broker import Attach
from broker_plugin.host.from_node import (
    Activated,
    Answer,
    BranchEnded,
    BranchPrepared,
    Deactivated,
    FromNode,
    LeaseUntil,
    MessageEnqueued,
    MessagesArriving,
    MessagesRemoved,
    OutcomeTold,
    PageRead,
    QueuePurged,
    StepConfigured,
    WatermarkRaised,
    Welcome,
)
from broker_plugin.host.remote_ledger import Questions, RemoteLedger
from broker_plugin.host.wire import HOST_VERSION, MAX_MESSAGE, decode_from_node, framed, messages_in
from txobserver.configuration import Configured, Refusal
from txobserver.events import Configure, Message, Removal
from txobserver.outcomes import PreparedBranch


class AttachedBroker(Protocol):
    """What a broker in a process of its own is told, in stream order (``Host`` of a broker within the node's process).

    A method must not block. What it raises ends the connection, and with that the node.
    """

    def on_active(self, ledger: RemoteLedger, start: Activated) -> None:
        """The node is the active primary: serve clients, from what ``start`` says and ``ledger.read`` reads.

        Messages at offsets up to a queue's delivery watermark are redelivered.
        """
        ...

    def on_inactive(self, reason: str) -> None:
        """No longer: close every client connection, answer nothing that is outstanding, forget every queue.

        Also told when the connection to the node is lost.
        """
        ...

    def on_arriving(self, queue: int, messages: int) -> None:
        """So many messages are on their way into the queue; ``RemoteLedger.grant`` counts them as announced."""
        ...

    def on_configured(self, step: Configure, done: Configured) -> None:
        """A configuration step has been applied, and this is what became of it."""
        ...

    def on_enqueued(self, queue: int, offset: int, rid: int, message: Message) -> None:
        """A message is now in the queue, behind all that were there."""
        ...

    def on_removed(self, queue: int, entries: Sequence[tuple[int, int]], reason: Removal) -> None:
        """Messages (offset, replication id) have left the queue."""
        ...

    def on_purged(self, queue: int, offset: int, spared: Sequence[int], count: int) -> None:
        """``count`` messages up to ``offset``, all but ``spared``, have left the queue."""
        ...

    def on_watermark(self, queue: int, offset: int) -> None:
        """Messages up to ``offset`` may be handed out from now on."""
        ...

    def on_branch_prepared(self, branch: PreparedBranch) -> None:
        """A branch has been prepared everywhere: what it dequeues is locked, also where a consumer held it."""
        ...

    def on_branch_ended(self, branch: PreparedBranch, committed: bool) -> None:
        """A prepared branch has ended. If it was rolled back, what it locked goes back to its offsets, redelivered."""
        ...


class AttachmentEnded(ConnectionError):
    """Raised when the connection between a broker and its node has ended, or could not be made; attach again."""


async def attach_broker(path: Path | str, broker: AttachedBroker, clients: tuple[str, int], name: str) -> None:
    """Attach to the node that listens at the Unix socket ``path``, and serve until the connection ends.

    ``clients``: host and port where the broker listens; the node passes clients on to it. ``name`` goes to its log.
    Always ends with an exception: AttachmentEnded when the node has ended, cannot be reached or refuses the broker,
    whatever a method of ``broker`` raises, or CancelledError.
    """
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[None] = loop.create_future()
    hello = Attach(HOST_VERSION, name, *clients)
    try:
        _, protocol = await loop.create_unix_connection(lambda: NodeProtocol(broker, hello, ended), str(path))
    except OSError as error:
        raise AttachmentEnded(f"no node listens at {path}: {error.strerror or error}") from error
    try:
        await ended
    finally:
        protocol.close()


def lease_clock() -> float:
    """Seconds on the clock that ``RemoteLedger.lease_until`` is given by."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class NodeProtocol(asyncio.Protocol):
    """The connection to a node; ``ended`` gets why it is over."""

    def __init__(self, broker: AttachedBroker, hello: Attach, ended: asyncio.Future[None]) -> None:
        self._broker = broker
        self._hello = hello
        self._ended = ended
        self._transport: asyncio.Transport | None = None
        self._buffer = bytearray()
        self._welcome: Welcome | None = None
        self._lease = 0.0
        self._questions: Questions | None = None
        self._told: dict[type[Any], Callable[[Any], None]] = {
            MessageEnqueued: lambda m: broker.on_enqueued(m.queue, m.offset, m.rid, m.message),
            MessagesArriving: lambda m: broker.on_arriving(m.queue, m.messages),
            MessagesRemoved: lambda m: broker.on_removed(m.queue, m.entries, Removal(m.reason)),
            QueuePurged: lambda m: broker.on_purged(m.queue, m.offset, m.spared, m.count),
            WatermarkRaised: lambda m: broker.on_watermark(m.queue, m.offset),
            BranchPrepared: lambda m: broker.on_branch_prepared(m.branch),
            BranchEnded: lambda m: broker.on_branch_ended(m.branch, m.committed),
            StepConfigured: self._configured,
            Answer: self._answered,
            PageRead: self._answered,
            OutcomeTold: self._answered,
            LeaseUntil: self._leased,
            Activated: self._activated,
            Deactivated: lambda m: self._deactivated(m.reason),
        }

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Attach."""
        self._transport = cast(asyncio.Transport, transport)
        self._transport.write(framed(self._hello))

    def data_received(self, data: bytes) -> None:
        """What the node tells."""
        self._buffer += data
        try:
            for each in messages_in(self._buffer, MAX_MESSAGE):
                self._take(decode_from_node(each))
        except Exception as error:  # whatever the broker raises: its state is not the stream's any more
            self._end(error)

    def connection_lost(self, error: Exception | None) -> None:
        """The node has ended, or has refused this broker."""
        reason = "its node has ended" if self._welcome else "the node refuses this broker; the node's log says why"
        self._end(AttachmentEnded(reason))

    def close(self) -> None:
        """End the connection."""
        if self._transport is not None:
            self._transport.abort()

    def _end(self, error: Exception) -> None:
        self.close()
        if not self._ended.done():
            self._ended.set_exception(error)
            self._deactivated(str(error))

    def _take(self, message: FromNode) -> None:
        if isinstance(message, Welcome):
            if message.version != HOST_VERSION:
                raise AttachmentEnded(f"the node speaks version {message.version} of the host protocol")
            self._welcome = message
        else:
            self._told[type(message)](message)

    def _send(self, data: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    def _activated(self, start: Activated) -> None:
        questions = self._questions = Questions(start.activation, self._send)
        self._broker.on_active(RemoteLedger(questions, lambda: self._lease), start)

    def _deactivated(self, reason: str) -> None:
        questions, self._questions = self._questions, None
        if questions is not None:
            questions.end()
            self._broker.on_inactive(reason)

    def _leased(self, message: LeaseUntil) -> None:
        self._lease = message.boottime

    def _configured(self, message: StepConfigured) -> None:
        refusal = Refusal(message.refusal) if message.refusal else None
        self._broker.on_configured(message.step, Configured(message.deleted, tuple(message.lapsed), refusal))

    def _answered(self, message: Answer | PageRead | OutcomeTold) -> None:
        if self._questions is not None:
            self._questions.answered(message)
