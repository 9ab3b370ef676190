"""Intake: the one consumer of a queue, at the driver. It knows each message by its place, and settles it when told.

Everything it does can be done again: after a lost connection the broker delivers once more what was not settled, and
places say what each message is. A settlement is a branch in one phase, so that its outcome is known; while it is not
known, the query ends with an error.

``recovery.pipeline.queues.settlements`` says which messages have left the queue for good.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Collection, Iterable

import pika
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import ChannelClosedByBroker, ConnectionWrongStateError

from recovery.dtx.conversation import Deadline
from recovery.dtx.errors import OperationalError
from recovery.dtx.lost import LOST
from recovery.dtx.with_pika import DtxConnection
from recovery.pipeline.errors import PipelineError
from recovery.pipeline.queues.options import QueueSourceOptions
from recovery.pipeline.queues.places import goes_on, history_of
from recovery.pipeline.queues.prefetched import Delivery, Prefetched
from recovery.pipeline.queues.settlements import Settlements

PLACE = "x-txha-place"
"""Argument of basic.consume, and header of what is delivered then."""

MOMENT = 0.02
"""Seconds in which what is on its way arrives."""

BEAT = 1.0
"""Seconds between two looks at the connection while Spark is busy, for its heartbeats."""

HIGHEST_PREFETCH = 65_535


class QueueIntake:
    """``done``: places that Spark has committed; see ``settlements``. ``room``: how many others may be here at a time.

    ``history``: that in which they are places; empty for whichever it is. Behind a loss of data that was accepted, or
    at another cluster, they may be those of messages that no query has read: that is an error, or, if data may be lost,
    all of them are forgotten, and what is in the queue is new.

    Raises PipelineError if there is no such queue, if another client consumes it, or for another history.
    """

    def __init__(self, options: QueueSourceOptions, done: Iterable[int], room: int, history: str = "") -> None:
        self.history = history
        self._options = options
        self._here = Prefetched()
        self.settlements = Settlements(options.queue, done)
        self._prefetch = min(room + len(self.settlements.done), HIGHEST_PREFETCH)
        self._deleted = False
        self._lock = threading.RLock()
        self._closed = threading.Event()
        try:
            self._broker = DtxConnection(*options.hosts, patience=options.patience, on_channel=self._consume)
        except OperationalError as error:
            if "ACCESS_REFUSED" in str(error):
                raise PipelineError(
                    f"queue {options.queue} has another consumer, and a source needs it alone"
                ) from error
            raise
        with contextlib.suppress(OperationalError, *LOST):  # the first settlement does it, then
            self.settlements.learn(self._broker)
        threading.Thread(target=self._keep_alive, name="txha-queue heartbeats", daemon=True).start()

    def close(self) -> None:
        """What was not settled stays in the queue."""
        self._closed.set()
        with self._lock:
            self._broker.close()

    def _consume(self, channel: BlockingChannel) -> None:
        """A new channel: everything that is in the queue comes once more."""
        self._here.come_again()
        self.settlements.come_again()
        self._go_on_in(history_of(channel.connection._impl.server_properties), channel)
        try:
            channel.queue_declare(self._options.queue, passive=True)
        except ChannelClosedByBroker as error:
            if error.reply_code == 404:
                raise PipelineError(f"there is no queue {self._options.queue}") from error
            raise
        channel.basic_qos(prefetch_count=self._prefetch, global_qos=True)
        channel.add_on_cancel_callback(self._cancelled)
        channel.basic_consume(self._options.queue, self._delivered, exclusive=True, arguments={PLACE: True})
        self.settlements.look(channel)

    def _go_on_in(self, history: str, channel: BlockingChannel) -> None:
        """Of the broker that this channel leads to."""
        if not goes_on(self.history, history):
            if self._options.fail_on_data_loss:
                channel.close()  # it is not used any more
                raise PipelineError(
                    f"what the checkpoint says of queue {self._options.queue} is of cluster, accepted loss and "
                    f"generation {self.history}, and this broker's are {history}: the same places may be those of "
                    "messages that no query has read. Give the query a new checkpoint, or set failOnDataLoss to false: "
                    "then all that is in the queue is read"
                )
            self.settlements.done.clear()
            self._here.forget()
        self.history = history

    def _cancelled(self, frame: object) -> None:
        self._deleted = True

    def _delivered(
        self,
        channel: BlockingChannel,
        method: pika.spec.Basic.Deliver,
        properties: pika.BasicProperties,
        body: bytes,
    ) -> None:
        place: int = properties.headers.pop(PLACE)
        properties.headers = properties.headers or None
        message = Delivery(place, method.redelivered, method.exchange, method.routing_key, properties, body)
        self._here.delivered(method.delivery_tag, message, unseen=place in self.settlements.done)

    def _keep_alive(self) -> None:
        while not self._closed.wait(BEAT):
            with self._lock, contextlib.suppress(*LOST):  # the next call that needs the connection makes another
                if not self._closed.is_set():
                    self._take_in(0)

    def _take_in(self, seconds: float) -> None:
        """What the broker has sent, or sends within this time. Raises pika's errors.

        A connection that has been lost since it was looked at is an error of pika's here; pika itself has another one.
        """
        if not self._broker.connection.is_open:
            raise ConnectionWrongStateError("the connection was lost")
        self._broker.connection.process_data_events(seconds)

    # -- taking

    def take(self, limit: int, wait: bool) -> list[int]:
        """Places of up to ``limit`` messages for the next batch, the lowest first.

        ``wait``: until there are so many, or nothing is left in the queue. Else what a moment brings.
        """
        with self._lock:
            deadline = Deadline(self._options.patience)
            while len(self._here.fresh()) < limit and self._pump(deadline):
                continue
            while wait and len(self._here.fresh()) < limit and not self._is_dry(deadline):
                continue
            found = sorted(self._here.fresh())[:limit]
            self._here.plan(found)
            return found

    def _pump(self, deadline: Deadline) -> bool:
        """Take in what arrives within a moment, and make room for it; whether anything did."""
        if self._here.count >= self._prefetch:
            self._make_room()
        return self._arrived(deadline)

    def _arrived(self, deadline: Deadline) -> bool:
        """As ``_pump``, of what the broker has sent by itself."""
        if self._deleted:
            raise PipelineError(f"queue {self._options.queue} was deleted")
        before = self._here.count
        try:
            self._take_in(MOMENT)
            if not self._broker.channel.is_open:
                self._broker.reconnect()
        except LOST:
            self._make_anew(deadline)
            return True
        return self._here.count != before

    def _make_anew(self, deadline: Deadline) -> None:
        if deadline.over:
            raise OperationalError("the broker is lost again and again")
        self._broker.reconnect()

    def _is_dry(self, deadline: Deadline) -> bool:
        """Whether everything that is in the queue is here."""
        ready = self._ready(deadline)
        return not self._pump(deadline) and not ready

    def _ready(self, deadline: Deadline) -> int:
        """How many messages wait in the queue, beside those that are here."""
        while True:
            try:
                answer = self._broker.channel.queue_declare(self._options.queue, passive=True)
            except LOST:
                self._make_anew(deadline)
            else:
                return int(answer.method.message_count)

    def waiting(self) -> int:
        """How many messages are in the queue or here, and in no batch.

        The queue tells its length without those that it has sent and that have not arrived. So the answer counts only
        when nothing was on its way.
        """
        with self._lock:
            deadline = Deadline(self._options.patience)
            while True:
                ready = self._ready(deadline)
                if not self._arrived(deadline):
                    return ready + len(self._here.fresh())

    def bring(self, places: Iterable[int]) -> list[Delivery]:
        """The messages of a batch; of one that an earlier driver has planned, as soon as they have come again.

        What is missing in the result has left the queue, or is held by another client.
        """
        with self._lock:
            wanted, history = set(places), self.history
            self._here.plan(wanted)
            deadline = Deadline(self._options.patience)
            while missing := self._here.missing(wanted):
                if self._here.highest > max(missing) or self._is_dry(deadline):
                    break
                if not goes_on(history, self.history):
                    return []
            return self._here.messages(wanted)

    def _make_room(self) -> None:
        """All that may be here is here, and none of it is what is wanted.

        What Spark has committed is in the way: drivers that were killed before they settled it may have left as much as
        may be here at all.
        """
        before = self._here.count
        self.settlements.settle(self._broker, self._here, None)
        if self._here.count < before:
            return
        if self._prefetch == HIGHEST_PREFETCH:
            raise PipelineError(
                f"{HIGHEST_PREFETCH} messages of queue {self._options.queue} are not settled, and those that are "
                "looked for stand behind them; if a client holds the message of queue "
                f"{self.settlements.record_queue}, without which none can be settled, put it back"
            )
        self._prefetch = min(2 * self._prefetch, HIGHEST_PREFETCH)
        with contextlib.suppress(*LOST):
            self._broker.channel.basic_qos(prefetch_count=self._prefetch, global_qos=True)

    # -- settling

    def settle(self, places: Iterable[int], named: Collection[int] | None = None) -> None:
        """Spark has committed these. When this returns, they have left the queue on every ready node, or stay ``done``.

        ``named``: places that the checkpoint of a later start may name as done; None for any. Raises OutcomeUnknown.
        """
        with self._lock:
            self.settlements.done.update(places)
            self._here.leave_out(self.settlements.done)
            self.settlements.settle(self._broker, self._here, named)
