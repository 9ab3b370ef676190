"""One AMQP connection without io: bytes in by ``receive``, bytes out by ``take_output``, time by ``tick``.

The wire is told when there is something to send and when reading may go on. A hard error sends connection.close and
ignores all but its close-ok from then on (AMQP 0-9-1, 1.4.1.3 and 1.5.2.5). The client's own connection.close is
answered when what came before it has been carried out. After bytes that are no frames nothing is read any more, since
it cannot be known where the next frame begins; the client's end or the time ends the connection.
"""

from __future__ import annotations

from collections.abc import Sequence

from pamqp import base, commands

from broker_plugin.amqp.protocol import handshake
from broker_plugin.amqp.protocol.client_connection import Wire
from broker_plugin.amqp.protocol.codec import (
    BODY,
    FRAME_END,
    FRAME_START,
    HEADER,
    HEARTBEAT,
    HEARTBEAT_FRAME,
    METHOD,
    OVERHEAD,
    PROTOCOL_HEADER,
    PUBLISH,
    decode_method,
    encode_close,
    encode_method,
    frame_problem,
)
from broker_plugin.amqp.protocol.handshake import CLOSED, CLOSING, CONNECTION_TABLE, LEAVING, OPEN
from broker_plugin.amqp.protocol.heartbeats import Heartbeats
from broker_plugin.amqp.protocol.intake import Intake
from broker_plugin.amqp.protocol.invariants import check_connection
from broker_plugin.amqp.protocol.last_word import LastWord
from broker_plugin.amqp.protocol.logging_in import LoggingIn
from broker_plugin.amqp.protocol.logins import Logins
from broker_plugin.amqp.protocol.open_channels import OpenChannels
from broker_plugin.amqp.protocol.settings import AmqpSettings
from broker_plugin.embedded.broker import EmbeddedBroker
from broker_plugin.embedded.errors import AmqpError, Forced
from broker_plugin.embedded.memory_budget import ANSWERS, CACHES, RECEIVED
from broker_plugin.embedded.queues.turn import STEPS
from txobserver.invariants import CHECKS, checking

EVERY_FRAME = 1 << 30


class Connection(LoggingIn):
    """Implements ``ConnectionOutlet``. ``peer`` names the client in logs; ``ended``: drop it once all is sent.

    Many methods: one for each method of class connection, and for each thing that the server reports of the socket.
    """

    def __init__(
        self,
        broker: EmbeddedBroker,
        settings: AmqpSettings,
        wire: Wire,
        peer: str = "",
        history: handshake.History = handshake.UNTOLD,
        address: str = "",
        logins: Logins | None = None,
    ) -> None:
        super().__init__(broker, settings, wire, address, logins)
        self.peer = peer
        self._history = history
        self.heartbeats = Heartbeats(settings.handshake_timeout)
        self.channels = OpenChannels(self, settings.channel_max, self._close_ok)
        self.intake = Intake(self, self.channels)
        self.behind = False
        self._partial = b""
        self._deaf = False
        self._current = 0
        self._alarm = self._alarms = 0
        self._last_word = LastWord()

    # -- in

    def receive(self, data: bytes, most: int = EVERY_FRAME) -> None:
        """Bytes from the client, of which so many frames at most are carried out now. ``behind``: more may wait."""
        self.behind = False
        self.heartbeats.received = True
        if self._partial:
            data = self._partial + data
            self._partial = b""
        if self.state == CLOSED or self._deaf:
            return
        if self.held_back or self.draining:
            self._partial = data
            self.weigh()
            return
        try:
            at = self._read_header(data) if self.state == handshake.AWAIT_HEADER else 0
            if self.state not in (CLOSED, handshake.AWAIT_HEADER):
                at = self._read_frames(data, at, most)
        except AmqpError as error:
            self._deaf = True
            self.fail(error, 0)
            self.weigh()
            return
        self._partial = data[at:]
        self.weigh()
        if CHECKS.on:
            self.check_invariants()

    def check_invariants(self) -> None:
        """What must be so between two readings. Raises InvariantBroken."""
        with checking(f"connection {self.peer}"):
            check_connection(self, self.state, self.channels, self._partial, self.behind)

    def _read_header(self, data: bytes) -> int:
        """The protocol header; another one is answered with ours and the end (AMQP 0-9-1, 4.2.2)."""
        if len(data) < len(PROTOCOL_HEADER) and PROTOCOL_HEADER.startswith(data):
            return 0
        if not data.startswith(PROTOCOL_HEADER):
            self.send(PROTOCOL_HEADER)
            self.end()
            return len(data)
        self._move("header")
        said = self.settings
        start = handshake.start(said.cluster, said.cluster_id, self._history, self.certified)
        self.send(encode_method(start, 0))
        return len(PROTOCOL_HEADER)

    def _read_frames(self, data: bytes, at: int, most: int) -> int:
        """Every whole frame from ``at`` on; returns where the rest begins. 501 if the bytes are no frames."""
        end, unpack, channels, turn = len(data), FRAME_START.unpack_from, self.channels.by_number, self.broker.turn
        kind: int
        number: int
        size: int
        left = most
        while end - at >= OVERHEAD:
            if left <= 0 or (turn.spent >= STEPS and most != EVERY_FRAME):
                self.behind = True
                break
            left -= 1
            kind, number, size = unpack(data, at)
            start = at + 7
            stop = start + size
            if size > self.max_payload:
                raise AmqpError(501, f"a frame of {size + OVERHEAD} bytes is larger than frame_max {self.frame_max}")
            if stop >= end:
                break
            if data[stop] != FRAME_END:
                problem = frame_problem(kind, data[start:stop])
                raise AmqpError(501, f"{problem}: {{invalid_frame_end_marker,{data[stop]}}}")
            at = stop + 1
            channel = channels.get(number)
            if channel is not None:
                if kind == METHOD and data[start : start + 4] == PUBLISH:
                    after = channel.whole_publish(data, start, stop)
                    if after:
                        at = after
                        continue
                channel.frame(kind, data[start:stop])
            else:
                self._other_frame(kind, number, data[start:stop])
            if self.state == CLOSED:
                return end
            if self.held_back:
                break
        turn.spent += most - left
        return at

    def _frame(self, kind: int, number: int, payload: bytes) -> None:
        """A frame of the connection itself, or of a channel that is not open."""
        if self.state == LEAVING:
            return
        if self._last_word.waits:
            self._part(self._last_word.heard(number))
        self._current = int.from_bytes(payload[:4], "big") if kind == METHOD else 0
        if kind == HEARTBEAT:
            if number:
                raise AmqpError(505, frame_problem(kind, payload))
        elif kind not in (METHOD, HEADER, BODY):
            raise AmqpError(501, f"{frame_problem(kind, payload)}: unknown_frame")
        elif number == 0:
            if kind != METHOD:
                raise AmqpError(505, frame_problem(kind, payload))
            self._method(decode_method(payload))
        elif self.state == OPEN:
            self.channels.frame(kind, number, payload)
        elif self.state != CLOSING:
            raise AmqpError(503, f"a frame for channel {number} before the connection is open")

    def read_again(self, number: int, frames: Sequence[tuple[int, bytes]]) -> None:
        turn = self.broker.turn
        for at, (kind, payload) in enumerate(frames):
            channel = self.channels.by_number.get(number)
            if channel is not None and turn.spent >= STEPS:
                channel.put_off(frames[at:])
                break
            turn.spent += 1
            if channel is not None:
                channel.frame(kind, payload)
            elif self.state != CLOSED:
                self._other_frame(kind, number, payload)

    def _other_frame(self, kind: int, number: int, payload: bytes) -> None:
        try:
            self._frame(kind, number, payload)
        except AmqpError as error:
            self.fail(error, self._current)

    # -- channel 0

    def _method(self, method: base.Frame) -> None:
        if isinstance(method, commands.Connection.CloseOk):
            self.end()
        elif isinstance(method, commands.Connection.Close):
            if self.state == OPEN:
                self._move("close received")
            self.channels.close()
        elif self.state == CLOSING:
            return
        elif isinstance(method, commands.Connection.StartOk) and self.state == handshake.AWAIT_START_OK:
            self._start_ok(method)
        elif isinstance(method, commands.Connection.TuneOk) and self.state == handshake.AWAIT_TUNE_OK:
            self._tune_ok(method)
        elif isinstance(method, commands.Connection.Open) and self.state == handshake.AWAIT_OPEN:
            self._open(method)
        elif isinstance(method, commands.Connection.UpdateSecret) and self.state == OPEN:
            self._update_secret(method)
        else:
            raise AmqpError(504, f"unexpected method in connection state {handshake.SHOWN[self.state]}")

    def _tune_ok(self, method: commands.Connection.TuneOk) -> None:
        handshake.check_tune(method, self.settings)
        self.frame_max = method.frame_max
        self.max_payload = method.frame_max - OVERHEAD if method.frame_max else 0xFFFFFFFF
        self.heartbeats.interval = method.heartbeat
        self.channels.limit = method.channel_max
        self._move("tune-ok")

    def _open(self, method: commands.Connection.Open) -> None:
        self._check_user()
        vhost = method.virtual_host
        session = self.channels.session = self.broker.connect(self, self.holder, self.user, vhost)
        session.alarm = self._alarm
        self._move("open")
        self.heartbeats.opened = True
        self.send(encode_method(commands.Connection.OpenOk(), 0))
        if self.intake.blocked is not None:
            self._tell_blocked()

    # -- out

    def take_output(self) -> bytes:
        """Everything that waits to be sent."""
        data = b"".join(self._output)
        if data:
            self.heartbeats.sent = True
            self._output = []
            self._output_bytes = 0
        return data

    def forget_output(self) -> None:
        """What waits to be sent is sent no more, but for the last word. Only at the end: a client misses answers."""
        self._output = self._last_word.forget(self._output)
        self._output_bytes = sum(map(len, self._output))
        self.weigh()

    def set_writable(self, writable: bool) -> None:
        if writable != self.writable and not (writable and self.draining):
            self.writable = writable
            self.channels.set_flowing(writable)
            if writable:
                self._wire.read_on()

    def block(self, reason: str | None) -> None:
        """Publishers are not read for this reason (None: no more); clients are told if they understand it."""
        before, self.intake.blocked = self.intake.blocked, reason
        if (before is None) != (reason is None):
            self._alarms += reason is not None
            self._alarm = self._alarms if reason is not None else 0
            if self.channels.session is not None:
                self.channels.session.alarm = self._alarm
            self.publishes = False
            if self.state == OPEN:
                self._tell_blocked()
        self._wire.read_on()

    def _tell_blocked(self) -> None:
        reason = self.intake.blocked
        if self.client_can("connection.blocked"):
            told = commands.Connection.Unblocked() if reason is None else commands.Connection.Blocked(reason)
            self.send(encode_method(told, 0))

    def weigh(self) -> None:
        """Tell the holder what the node keeps for this connection."""
        holder = self.holder
        holder.now_holds(RECEIVED, len(self._partial) + self.waiting_bytes + self.content_bytes)
        holder.now_holds(ANSWERS, self._output_bytes + self.unsent_bytes)
        holder.now_holds(CACHES, self.cached_bytes + self.check_properties.bytes)

    def sent(self, unsent: int) -> None:
        """What there was to send has been given to the system, and so many bytes of that wait for the client there."""
        self.unsent_bytes = unsent
        self.weigh()

    def vanish(self) -> None:
        """The wire is gone: the connection is over, and nothing is sent any more."""
        self.end()
        self._output, self._partial = [], b""
        self._output_bytes = self.unsent_bytes = 0
        self.forget_cache()
        self.weigh()

    # -- time

    def tick(self, now: float, reading: bool = True) -> None:
        """Time passes: heartbeats, and the end of clients that are silent although they are read."""
        if self.state == CLOSED:
            return
        self._tell_refused_in_time(now)
        if self.heartbeats.is_late(now, reading):
            self.end()
        elif self.heartbeats.is_due(now) and not self._last_word.due:
            self.send(HEARTBEAT_FRAME)

    # -- the end

    @property
    def ended(self) -> bool:
        """Whether the connection is over; what is left to send is sent and the wire is closed."""
        return self.state == CLOSED

    def _close_ok(self) -> None:
        self.send(encode_method(commands.Connection.CloseOk(), 0))
        self.end()

    def fail(self, error: AmqpError, method: int) -> None:
        if self.state in (CLOSING, CLOSED):
            return
        if self.state == handshake.AWAIT_HEADER:
            self.end()
            return
        self._move("close sent")
        self.channels.leave()
        self.heartbeats.closing = True
        self.send(encode_close(commands.Connection.Close, error, method))

    def expel(self, error: AmqpError) -> None:
        """The client may not stay; what is outstanding goes back to its queues."""
        self.fail(error, 0)

    def drain(self) -> None:
        """Begin nothing more. What has come waits, and what is sent back is answers alone."""
        self.set_writable(False)
        self.draining = True

    @property
    def undecided(self) -> bool:
        """Whether something that has begun has no answer, or an answer was forgotten."""
        return self._last_word.answers_lost or self.channels.undecided

    @property
    def parting(self) -> bool:
        """Whether it was closed by force, and the client has not answered that."""
        return self._last_word.due and self.state == CLOSING

    def force_close(self, error: Forced) -> None:
        """This node does not serve clients any more: say so, behind all answers, and read on until close-ok.

        A socket that is closed while something waits in it is reset, and its client would lose the last word.
        """
        unheard = self.channels.unheard(self._partial)
        self.channels.abandon()
        self.waiting_bytes, self.content_bytes, self.draining = 0, 0, False
        if self.state not in (OPEN, LEAVING):
            self.end()
            return
        self._move("close sent")
        self.heartbeats.closing = True
        self._part(self._last_word.begin(error, unheard))
        self.set_writable(True)
        self._wire.read_on()
        if self._last_word.waits:
            self._wire.part_later()

    def part(self) -> None:
        """The last word waits no longer for what the client has not shown to have heard."""
        self._part(self._last_word.time_is_up() if self.state == CLOSING else b"")

    def _part(self, last: bytes) -> None:
        if last:
            self.send(last)

    def end(self) -> None:
        """The connection is over, for whatever reason; what is outstanding goes back to its queues."""
        if self.state != CLOSED:
            self._move("ended")
            self.channels.leave()
            self._wire.wake()

    def _move(self, event: str) -> None:
        self.state = CONNECTION_TABLE.next(self.state, event)
