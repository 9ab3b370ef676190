"""A connection while it logs in: nothing more of it is read until it is known whether it may.

To verify a password takes a while, and is done elsewhere (``PasswordChecks``). A refusal may have to wait, too.
"""

from __future__ import annotations

from abc import abstractmethod

from pamqp import commands

from broker_plugin.amqp.protocol import handshake
from broker_plugin.amqp.protocol.client_connection import ClientConnection, Wire
from broker_plugin.amqp.protocol.codec import encode_method
from broker_plugin.amqp.protocol.handshake import AWAIT_START_OK, CONNECTION_TABLE, OPEN
from broker_plugin.amqp.protocol.logins import LoginRefused, Logins
from broker_plugin.amqp.protocol.properties import PropertyCheck
from broker_plugin.amqp.protocol.settings import AmqpSettings
from broker_plugin.embedded.broker import EmbeddedBroker
from broker_plugin.embedded.errors import AmqpError, user_deleted

UPDATE_SECRET = 0x000A0046
"""Class and method of connection.update-secret"""


class LoggingIn(ClientConnection):
    """``address`` is the host that the client connects from, "" in this process; ``user``: whom it has logged in as.

    ``certified``: whom its certificate stands for, which may log in so (EXTERNAL); None where it has given none.
    ``logins``: those of the node, or of this connection alone.
    """

    def __init__(
        self, broker: EmbeddedBroker, settings: AmqpSettings, wire: Wire, address: str, logins: Logins | None
    ) -> None:
        super().__init__(broker, settings, wire)
        self.state = CONNECTION_TABLE.start
        self.address = address
        self.user = ""
        self.certified: str | None = None
        self._number: int | None = None
        self._logins = logins or Logins(settings.users)
        self._refused: LoginRefused | None = None
        self._refused_until = 0.0
        self._asking = False

    def _start_ok(self, method: commands.Connection.StartOk) -> None:
        self._capabilities = handshake.capabilities(method)
        self.held_back = self._asking = True
        try:
            self._logins.judge(method, self.address, self._judged, self._waits_for_verdict, self.certified)
        except AmqpError:
            self.held_back = False
            raise
        finally:
            self._asking = False

    def _waits_for_verdict(self) -> bool:
        return self.state == AWAIT_START_OK and self._refused is None

    def _judged(self, verdict: str | LoginRefused) -> None:
        """Whom the client has logged in as, or why it has not; at once or later."""
        if not self._waits_for_verdict():
            return
        if isinstance(verdict, LoginRefused):
            self._refused, self._refused_until = verdict, self._logins.now + verdict.delay
            if verdict.delay <= 0:
                self._tell_refused(verdict)
        else:
            self.held_back = False
            self.user, self._number = verdict, self._logins.number(verdict)
            self.check_properties = PropertyCheck(verdict, self.broker.unsupported)
            self.passed_properties = self.check_properties.passed
            self._move("start-ok")
            self.send(encode_method(handshake.tune(self.settings), 0))
        if not self._asking and not self.held_back:
            self._go_on()

    def _go_on(self) -> None:
        """What has come meanwhile is read."""
        self.receive(b"")
        self._wire.read_on()

    def _tell_refused(self, refused: LoginRefused) -> None:
        self.held_back = False
        if self.client_can("authentication_failure_close"):
            self.fail(refused, 0)
        else:
            self.end()

    def _tell_refused_in_time(self, now: float) -> None:
        """A refusal that had to wait."""
        if self._refused is not None and self.held_back and now >= self._refused_until:
            self._tell_refused(self._refused)
            self._go_on()

    def _check_user(self) -> None:
        """320 for a user that was deleted while it was logging in, also if another one has the name now
        (``user_added_anew_before_the_connection_opens``)."""
        number = self._logins.number(self.user)
        if number is None or (self._number and number != self._number):
            raise user_deleted(self.user)

    def _update_secret(self, method: commands.Connection.UpdateSecret) -> None:
        def told(error: AmqpError | None) -> None:
            if self.state != OPEN:
                return
            if error is None:
                self.send(encode_method(commands.Connection.UpdateSecretOk(), 0))
            else:
                self.fail(error, UPDATE_SECRET)

        self._logins.check_secret(method, self.user, self.address, told, lambda: self.state == OPEN)

    @abstractmethod
    def receive(self, data: bytes) -> None:
        """Bytes from the client."""

    @abstractmethod
    def end(self) -> None:
        """The connection is over."""

    @abstractmethod
    def _move(self, event: str) -> None:
        """Go to the state that follows on this event."""
