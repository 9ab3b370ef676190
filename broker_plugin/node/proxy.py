"""What a node does with a client's connection: serve it, pass it through to the primary, or refuse it.

A client that comes while no primary is known is kept waiting, with what it has sent so far, until there is one (or
the deadline comes); so a take-over looks like a slow connection, not like a refused one. That holds until the primary's
first word: one that was killed a moment ago may still accept a connection, and never serves it.

A connection costs the primary nothing before its client has said AMQP's header. Until it has logged in it is a newcomer
here as well (``broker_plugin.amqp.arrivals``), of which there are few, and fewer of one address: so idle sockets keep
no client out, neither here nor at the primary.

Where a client's user may come from is judged here too (``PassedLogin``). The client comes from where the connection
does, or from where another node says that it does, which was given it first and has taken this one for the primary.

A client is passed on to the primary of one generation. When the record has another generation, no client of the former
one is served any more, and its primary may be stopped, and never say so: its clients' connections end here
(``passed_on_to_a_stopped_primary``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from socket import socket as Socket
from typing import cast

from pamqp import commands

from broker_plugin.amqp.arrivals import Arrivals
from broker_plugin.amqp.protocol.codec import PROTOCOL_HEADER, encode_close
from broker_plugin.amqp.protocol.handshake import capabilities
from broker_plugin.amqp.protocol.introductions import ClientWay, Introduced
from broker_plugin.amqp.protocol.logins import LOOPBACK_ONLY, LoginRefused, Logins, credentials_in
from broker_plugin.amqp.protocol.passed_login import PassedAnswers, PassedLogin
from broker_plugin.amqp.server import UNKNOWN
from broker_plugin.guard import Guard, GuardedProtocol, read_on
from broker_plugin.node.descriptors import Place, Room
from broker_plugin.node.passing import PassOn, PrimarySide, Refuse, Serve, Verdict
from broker_plugin.node.passing_tls import PassingRefusals

DEADLINE_SECONDS = 15.0
RETRY_SECONDS = 0.2
LAST_WORD_SECONDS = 5.0
"""In which a client whose login is refused answers that; then its connection is closed."""
LAST_WORDS_OF_PRIMARY = 0.7
"""Seconds in which a client is still passed what the primary of a generation that is over has said: above all how it
has closed the connection. Then the connection ends."""
HELD_BYTES = 1 << 14
"""Of a client that waits for a primary: when it has sent more, nothing more is read from it."""
MOST_HELD = 1 << 16
"""Bytes: one that has said more than this of AMQP before it was answered is dropped. A client says eight and waits; who
says more has not logged in, and a thousand of them would fill the node's memory."""


class FrontDoor(GuardedProtocol):
    """A client's connection until it is known what becomes of it, and the client's half of a passed-on one.
    Many methods: those of a protocol, of a door, and what the primary's side tells.

    ``doors`` are those that want to be told when something changes: all but those of clients that are served here.
    Each of those that wait may be passed on, which takes a connection more: ``room`` is left for all of these. Where
    there is none after all, since the node itself has opened more meanwhile, a client goes on waiting.
    ``logins`` is called with each one that is refused; ``arrivals`` counts those that have not logged in. ``amqp``:
    clients speak AMQP. A host broker may speak any protocol, in which perhaps the server speaks first: then a client is
    passed on at once, and is a newcomer until the primary's first word. ``refusals`` tell of clients that could only be
    passed on in clear, and came encrypted.

    Many methods: one for each thing that either side of the connection, or the node, reports.
    """

    def __init__(
        self,
        guard: Guard,
        decide: Callable[[], Verdict],
        doors: set[FrontDoor],
        room: Room,
        logins: Logins,
        arrivals: Arrivals,
        amqp: bool = True,
        refusals: PassingRefusals | None = None,
    ) -> None:
        self.guard = guard
        self._refusals = refusals or PassingRefusals()
        self._way = ClientWay()
        self._logins = logins
        self._arrivals = arrivals
        self._amqp = amqp
        self._reception = arrivals.reception()
        self._reception.over = not amqp
        self._introduced: Introduced | None = None
        self._login = PassedLogin(UNKNOWN)
        self._answers = PassedAnswers()
        self._logged_in = False
        self._from: tuple[str, int] | None = None
        self._address = UNKNOWN
        self._refused = False
        self._decide = decide
        self._doors = doors
        self._place = Place(room)
        self._held = bytearray()
        self._transport: asyncio.Transport | None = None
        self._other: PrimarySide | None = None
        self._answered = False
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client connects."""
        self._transport = transport = cast(asyncio.Transport, transport)
        peer = transport.get_extra_info("peername")
        if peer:
            self._from = self._address, _ = str(peer[0]), int(peer[1])
        self._login = PassedLogin(self._address)
        self._reception.carrier = self._arrivals.carrier(transport)
        self._way = self._arrivals.way(transport)
        if not self._place.take(transport):
            transport.abort()
            return
        verdict = self._decide()
        if not isinstance(verdict, Serve | Refuse) and not self._arrivals.arrive(self, self._address):
            transport.abort()
            return
        self._doors.add(self)
        self._deadline = self.guard.call_later(DEADLINE_SECONDS, self.abort)
        self._act(verdict)

    def data_received(self, data: bytes) -> None:
        """Pass on, or keep."""
        if self._refused:
            if self._transport is not None:
                self._transport.close()
            return
        if not self._reception.over:
            data = self._receive(data)
        if not data:
            return
        if not self._login.passed and (login := self._login.read(data)) is not None:
            self._refuse(login)
            return
        if self._other is not None:
            self._other.write(data)
        if not self._answered:
            silent = not self._held or not _spoken(self._held)
            self._held += data
            if silent and self._other is None:
                self.reconsider()
            if len(self._held) > HELD_BYTES and self._transport is not None:
                self._transport.pause_reading()
                if self._amqp and len(self._held) > MOST_HELD:
                    self._held.clear()
                    self._transport.abort()

    def connection_lost(self, error: Exception | None) -> None:
        """The client is gone."""
        self._doors.discard(self)
        self._transport = None
        self._leave()
        if self._other is not None:
            self._other.close()

    def pause_writing(self) -> None:
        """The client reads slowly: so do we from the primary."""
        if self._other is not None:
            self._other.set_reading(False)

    def resume_writing(self) -> None:
        """The client has caught up."""
        if self._other is not None:
            self._other.set_reading(True)

    def reconsider(self) -> None:
        """Something has changed: is it known now what becomes of this connection?"""
        if self._transport is None or self._other is not None or self._refused:
            return
        self._act(self._decide())

    def look(self, generation: int) -> None:
        """The record has this generation now, or something else has changed."""
        if self._other is not None and self._other.target.generation != generation:
            if self._answered:  # its last words may be on their way, and are true whenever they come
                self.guard.call_later(LAST_WORDS_OF_PRIMARY, partial(self._part, self._other))
            else:
                self._part(self._other)
        if not self._answered:
            self.reconsider()

    def _part(self, other: PrimarySide) -> None:
        """The former primary is none any more."""
        if self._other is not other:
            return
        self._other = None
        other.abandon()
        self._place.owe(True)
        if self._answered and self._transport is not None:
            self._transport.close()

    def _refuse(self, login: commands.Connection.StartOk) -> None:
        """It may not come from here, and the primary is not told of it. Its client is, after a while."""
        self._refused = True
        self._held.clear()
        self._doors.discard(self)
        other, self._other = self._other, None
        if other is not None:
            other.abandon()
        assert self._transport is not None
        self._transport.pause_reading()
        credentials = credentials_in(login)
        user = credentials.user if credentials is not None else ""
        why = f"{LOOPBACK_ONLY} can only log in from loopback"
        refused = self._logins.refused(user, self._address, str(login.mechanism), why)
        can = capabilities(login).get("authentication_failure_close") is True
        self.guard.call_later(refused.delay, lambda: self._tell_refused(refused if can else None))

    def _tell_refused(self, refused: LoginRefused | None) -> None:
        """Its client is told if it understands that, and may then say that it has heard it."""
        if self._transport is None:
            return
        if refused is None:
            self._transport.close()
            return
        self._transport.write(encode_close(commands.Connection.Close, refused, 0))
        self._transport.resume_reading()
        self.guard.call_later(LAST_WORD_SECONDS, self.abort)

    def abort(self) -> None:
        """Drop the client."""
        if self._transport is not None:
            self._transport.abort()

    def _act(self, verdict: Verdict) -> None:
        """What is to become of this connection, as far as it can be done by now.

        The primary is not dialled for a client that says nothing; one that is introduced has to be known first.
        """
        assert self._transport is not None
        if isinstance(verdict, Refuse):
            self._transport.abort()
        elif self._reception.asked:
            return
        elif isinstance(verdict, Serve):
            self._hand_over(verdict.factory() if self._introduced is None else verdict.factory(self._introduced))
        elif isinstance(verdict, PassOn) and (_spoken(self._held) or not self._amqp):
            if verdict.takes(self._way):
                self._other = PrimarySide(self, verdict, self._from, self._way)
            else:
                self._refusals.in_clear(self._address, verdict.primary)
                self._transport.abort()

    def _receive(self, data: bytes) -> bytes:
        """Another node may introduce the client first; what behind that is for the broker."""
        taken = self._arrivals.begins(self, self._reception, data, self._address)
        if taken is None or self._transport is None:
            return b""
        if taken.answer:
            self._transport.write(taken.answer)
        if taken.introduced is not None:
            self._introduced = taken.introduced
            self._from = self._address, _ = taken.introduced.host, taken.introduced.port
            self._way = taken.introduced.way
            self._login = PassedLogin(self._address)
            if not taken.rest:
                self.reconsider()
        return taken.rest

    def _leave(self) -> None:
        """The client is gone, or served by this node."""
        self._arrivals.leave(self)
        self._place.leave()
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _hand_over(self, protocol: GuardedProtocol) -> None:
        transport, self._transport = self._transport, None
        assert transport is not None
        self._doors.discard(self)
        self._leave()
        transport.set_protocol(protocol)
        protocol.connection_made(transport)
        if said := self._reception.so_far + self._held:
            protocol.data_received(said)
        transport.resume_reading()

    # -- what the primary's side tells

    def socket(self, family: int, kind: int, protocol: int) -> Socket:
        """A second descriptor for this client. Raises OSError where only the node's own are left."""
        return self._place.open_socket(family, kind, protocol)

    def reached(self, primary: PrimarySide) -> None:
        """It is connected with the primary: pass on what has come so far."""
        if self._transport is None or primary is not self._other:
            primary.close()
            return
        primary.write(bytes(self._held))
        self._transport.resume_reading()

    def from_primary(self, data: bytes) -> None:
        """Pass on to the client."""
        if not self._answered:
            self._answered = True
            self._held.clear()
            if self._deadline is not None:
                self._deadline.cancel()
                self._deadline = None
            self._arrivals.step(self)
            if self._transport is not None:
                self._transport.resume_reading()
        if not self._logged_in:
            self._answers.read(data)
            self._logged_in = self._answers.logged_in or not self._amqp
            if self._logged_in:
                self._arrivals.leave(self)
        if self._transport is not None:
            self._transport.write(data)

    def primary_lost(self, reached: bool) -> None:
        """The primary cannot be reached, or has closed the connection: so do we, unless it never said a word on it.

        Then it may be back soon, or another one known. But a client that has said nothing may have been closed for that
        by one that was ``reached``: it is tried again when it speaks.
        """
        self._other = None
        self._place.owe(True)
        if self._transport is None:
            return
        if self._answered:
            self._transport.close()
        elif self._held or not reached:
            self.guard.call_later(RETRY_SECONDS, self.reconsider)

    def not_passed_on(self, primary: str, reason: str) -> None:
        """What answers there is not the primary, or says that this node is none: it is tried again."""
        self._refusals.failed(self._address, primary, reason)

    def primary_slow(self, slow: bool) -> None:
        """The primary reads slowly, or has caught up."""
        read_on(self._transport, not slow)


def _spoken(held: bytearray) -> bool:
    """Whether a client has said AMQP's header, or what is none."""
    return len(held) >= len(PROTOCOL_HEADER) or not PROTOCOL_HEADER.startswith(bytes(held))
