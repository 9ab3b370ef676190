"""One AMQP channel without io: frames in, frames out, in front of the embedded broker's channel.

Requests are answered one after the other: while one waits for the ledger, what the client sends behind it waits too.
A soft error closes the channel: everything is then ignored until the client's close-ok (AMQP 0-9-1, 1.5.2.5).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from functools import partial

from pamqp import base, commands

from broker_plugin.amqp.protocol.answering import Answering
from broker_plugin.amqp.protocol.client_connection import ClientConnection, Siblings
from broker_plugin.amqp.protocol.codec import (
    ACK,
    BASIC,
    BODY,
    COMMIT,
    FRAME_END,
    FRAME_START,
    HEADER,
    HEADER_FRAME,
    HEARTBEAT,
    METHOD,
    PUBLISH,
    PublishArguments,
    Repeated,
    decode_ack,
    decode_method,
    decode_publish,
    encode_close,
    encode_confirm,
    encode_content,
    encode_delivery,
    encode_method,
    encode_return,
    frame_problem,
)
from broker_plugin.amqp.protocol.content import IncomingContent
from broker_plugin.amqp.protocol.methods import HANDLERS, commit
from broker_plugin.embedded.channels.session import Session
from broker_plugin.embedded.errors import AmqpError
from broker_plugin.embedded.queues.turn import STEPS
from txobserver.events import Message

WAITING_OVERHEAD = 100
"""Bytes that a frame that waits is counted for beside its payload."""

OCTETS_A_STEP = 128
"""Octets of arguments, or of properties that are new, that count as a frame of their own"""

MAKING_STEPS = 4
"""Steps that a method costs beside its frame which opens, declares, binds or begins something, or ends it: it takes as
much processor time as five that only ask or settle."""

_MAKING_CLASSES = (20, 40, 50)
"""Classes channel, exchange and queue"""
_MAKING = (60 << 16 | 20, 60 << 16 | 30)
"""basic.consume and basic.cancel"""

PUBLISH_INDEX = 60 << 16 | 40
ACK_INDEX = 60 << 16 | 80
COMMIT_INDEX = 90 << 16 | 20

LONGEST_HEAD = 512
"""Bytes of what is remembered of a repeated publish beside its arguments."""


class AmqpChannel(Answering):
    """Implements ``ChannelOutlet``.

    Many methods: frames come in, the broker's answers go out, and what waits goes on.
    """

    def __init__(self, connection: ClientConnection, siblings: Siblings, session: Session, number: int) -> None:
        super().__init__(connection, siblings, number)
        self.inner = session.open_channel(self)
        self.closing = False
        self.left = False
        self._put_off = False
        self._backlog: deque[tuple[int, bytes]] = deque()
        self._method = 0
        self._content = IncomingContent(connection)

    @property
    def undecided(self) -> bool:
        """Whether the client waits for the outcome of something that has begun."""
        return self.busy or self.inner.awaited

    @property
    def held(self) -> bool:
        """Whether something has come that was not carried out."""
        return bool(self._backlog)

    def telling(self) -> None:
        """Of an answer of class basic no client is in doubt: it is asked for again."""
        if self._method >> 16 != BASIC:
            self.pipelines = self.pipelines or bool(self._backlog)
            self.unheard = True

    # -- frames from the client

    def frame(self, kind: int, payload: bytes) -> None:
        """The next frame of this channel."""
        if self.busy or self._backlog or not self.connection.writable:  # also while it drains
            self._keep(kind, payload)
        else:
            self._handle(kind, payload)

    def _keep(self, kind: int, payload: bytes) -> None:
        """It waits for its turn."""
        self._backlog.append((kind, payload))
        self.connection.waiting_bytes += len(payload) + WAITING_OVERHEAD

    def _handle(self, kind: int, payload: bytes) -> None:
        self._handling = True
        self.unheard = False
        try:
            self._dispatch(kind, payload)
        except AmqpError as error:
            self.failed(error)
        finally:
            self._handling = False

    def _dispatch(self, kind: int, payload: bytes) -> None:
        if self.closing:
            self._ignore_until_closed(kind, payload)
        elif kind == METHOD:
            if self._content.arguments is not None:
                raise self._content.unexpected()
            if payload.startswith(PUBLISH):
                self._method = PUBLISH_INDEX
                self._content.begin(self._repeated(payload).arguments)
            elif payload.startswith(ACK):
                self._method = ACK_INDEX
                tag, multiple = decode_ack(payload)
                if multiple:
                    self.wait()
                    self.inner.ack(tag, True, self._acknowledged)
                else:
                    self.inner.ack(tag, False)
            elif payload == COMMIT:
                self._method = COMMIT_INDEX
                commit(self)
            else:
                self._method = int.from_bytes(payload[:4], "big")
                self._call(decode_method(payload), len(payload))
        elif kind in (HEADER, BODY):
            self._content_frame(kind, payload)
        else:
            self._method = 0
            problem = frame_problem(kind, payload)
            raise AmqpError(505, problem) if kind == HEARTBEAT else AmqpError(501, f"{problem}: unknown_frame")

    def _acknowledged(self) -> None:
        self.answer(None)

    def _call(self, method: base.Frame, size: int) -> None:
        """What is long counts as many frames: it may be a table of a hundred thousand values. What makes something
        counts as some (``a_flood_of_channels``)."""
        index: int = method.index
        steps = size // OCTETS_A_STEP
        if index >> 16 in _MAKING_CLASSES or index in _MAKING:
            steps += MAKING_STEPS
        self.broker.turn.spent += steps
        handler = HANDLERS.get(method.index)
        if handler is None:
            raise AmqpError(503, "unimplemented method")
        handler(self, method)

    def _ignore_until_closed(self, kind: int, payload: bytes) -> None:
        if kind != METHOD:
            return
        if payload.startswith(b"\x00\x14\x00\x29"):
            self.siblings.forget(self.number)
        elif payload.startswith(b"\x00\x14\x00\x28"):
            self.left = True
            self.send(encode_method(commands.Channel.CloseOk(), self.number))
            self.siblings.forget(self.number)

    # -- content

    def whole_publish(self, data: bytes, start: int, stop: int) -> int:
        """basic.publish at ``data[start:stop]`` with all of its content behind it, if it is there in one body frame.

        Returns the offset behind the content, or 0 if it has to be read frame by frame, or waits.
        """
        waits = self.busy or self._backlog or not self.connection.writable
        if waits or self.closing or self._content.arguments is not None:
            return 0
        at, end, number = stop + 1, len(data), self.number
        repeated = self.connection.published.get(data[start:stop])
        if repeated is not None and repeated.size and repeated.channel == number:
            body_start = at + len(repeated.head)
            after = body_start + repeated.size + 1
            if after <= end and data[at:body_start] == repeated.head and data[after - 1] == FRAME_END:
                self._publish_whole(repeated, repeated.properties, data[body_start : after - 1])
                return after
        if end - at < 20:
            return 0
        size: int
        length: int
        kind, channel, size, class_id, _, length = HEADER_FRAME.unpack_from(data, at)
        header_stop = at + 7 + size
        after = header_stop + 1
        if kind != HEADER or channel != number or class_id != BASIC or after > end or data[header_stop] != FRAME_END:
            return 0
        body = b""
        body_start = 0
        if length:
            body_start = after + 7
            after = body_start + length + 1
            if after > end or length > self.connection.max_payload:
                return 0
            kind, channel, size = FRAME_START.unpack_from(data, body_start - 7)
            if kind != BODY or channel != number or size != length or data[after - 1] != FRAME_END:
                return 0
            body = data[body_start : after - 1]
        properties = data[at + 19 : header_stop]
        try:
            repeated = self._repeated(data[start:stop])
        except AmqpError as error:
            self._method = PUBLISH_INDEX
            self.failed(error)
            return after
        if self._publish_whole(repeated, properties, body) and length and body_start - at <= LONGEST_HEAD:
            self.connection.repeat(repeated, number, data[at:body_start], properties, length)
        return after

    def _publish_whole(self, repeated: Repeated, properties: bytes, body: bytes) -> bool:
        """Publish what came in one piece; whether that went well."""
        self._method = PUBLISH_INDEX
        self._handling = True
        self.unheard = False
        try:
            self._publish(repeated.arguments, properties, body)
        except AmqpError as error:
            self.failed(error)
            return False
        finally:
            self._handling = False
        return True

    def _repeated(self, payload: bytes) -> Repeated:
        """What a publish says, remembered per connection: publishers repeat themselves."""
        repeated = self.connection.published.get(payload)
        if repeated is None:
            arguments = decode_publish(payload)
            if arguments.immediate:
                raise AmqpError(540, "immediate=true")
            repeated = self.connection.known_publish(payload, arguments)
        return repeated

    def _content_frame(self, kind: int, payload: bytes) -> None:
        """A part of the content; the publish is carried out when it is complete."""
        content = self._content
        if content.arguments is None:
            self._method = 0
        if kind == HEADER:
            complete = content.header(payload, self.connection.settings.max_message_bytes)
        else:
            complete = content.body(payload)
        if complete:
            arguments, properties, body = content.take()
            self._publish(arguments, properties, body)

    def _publish(self, arguments: PublishArguments, properties: bytes, body: bytes) -> None:
        connection = self.connection
        connection.publishes = True
        if properties not in connection.passed_properties:
            self.broker.turn.spent += len(properties) // OCTETS_A_STEP
            connection.check_properties(properties, arguments[0])
        self.inner.publish(arguments[0], arguments[1], arguments[2], properties, body)

    def go_on(self) -> None:
        backlog, connection, turn = self._backlog, self.connection, self.broker.turn
        while backlog and not self.busy and connection.writable:
            if turn.spent >= STEPS:
                self.put_off(())
                return
            turn.spent += 1
            kind, payload = backlog.popleft()
            connection.waiting_bytes -= len(payload) + WAITING_OVERHEAD
            self._handle(kind, payload)
        if not backlog and not self.busy:
            self.siblings.carried_out(self.number)
        connection.relieved()

    def put_off(self, frames: Sequence[tuple[int, bytes]]) -> None:
        """These frames wait behind what waits already; the next turn goes on with it."""
        for kind, payload in frames:
            self._keep(kind, payload)
        if not self._put_off:
            self._put_off = True
            self.broker.turn.later(self._go_on_again)

    def _go_on_again(self) -> None:
        self._put_off = False
        if not self.left:
            self.go_on()

    def close(self) -> None:
        self.closing = True
        self._content.drop()
        self.wait()
        self.inner.close(self._closed)

    def _closed(self) -> None:
        """Answer the client's close; what it has sent behind it is for the next channel of this number."""
        if self.left:
            return
        behind = list(self._backlog)
        self.leave()
        self.busy = False
        self.send(encode_method(commands.Channel.CloseOk(), self.number))
        self.siblings.forget(self.number)
        self.connection.read_again(self.number, behind)
        if not self._handling:
            self.siblings.carried_out(self.number)

    def leave(self) -> None:
        self.left = self.closing = True
        self._content.drop()
        self.connection.waiting_bytes -= sum(len(payload) + WAITING_OVERHEAD for _, payload in self._backlog)
        self._backlog.clear()

    # -- ChannelOutlet

    def deliver(self, consumer_tag: str, delivery_tag: int, redelivered: bool, message: Message) -> None:
        """basic.deliver."""
        connection = self.connection
        connection.send(
            encode_delivery(
                self.number,
                self._prefixes[consumer_tag],
                delivery_tag,
                redelivered,
                connection.origin(message.exchange, message.routing_key),
                (message.properties, message.body),
                connection.frame_max,
            )
        )

    def returned(self, code: int, text: str, message: Message) -> None:
        """basic.return."""
        origin = self.connection.origin(message.exchange, message.routing_key)
        self.send(encode_return(self.number, code, text, origin))
        self.send(encode_content(self.number, message.properties, message.body, self.connection.frame_max))

    def confirmed(self, delivery_tag: int, multiple: bool, accepted: bool) -> None:
        """basic.ack or basic.nack."""
        self.pipelines = self.pipelines or multiple or self.unheard or self.inner.awaited
        self.unheard = True
        self.send(encode_confirm(self.number, delivery_tag, multiple, accepted))

    def cancelled(self, consumer_tag: str) -> None:
        """basic.cancel, if the client said that it understands it."""
        self.expect_no_deliveries(consumer_tag)
        if self.connection.client_can("consumer_cancel_notify"):
            self.send(encode_method(commands.Basic.Cancel(consumer_tag, True), self.number))

    def failed(self, error: AmqpError) -> None:
        """Close the channel, or for a hard error the connection."""
        if error.hard:
            self.connection.fail(error, self._method)
            return
        if self.closing:
            return
        self.closing = True
        self.busy = False
        self._content.drop()
        self.inner.close(partial(self._tell_failed, error, self._method))
        if not self._handling:
            self.go_on()

    def _tell_failed(self, error: AmqpError, method: int) -> None:
        if not self.left:
            self.send(encode_close(commands.Channel.Close, error, method, self.number))
