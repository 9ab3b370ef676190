"""The content of one basic.publish that comes frame by frame: a header, then bodies (AMQP 0-9-1, 4.2.6)."""

from __future__ import annotations

from broker_plugin.amqp.protocol.client_connection import ClientConnection
from broker_plugin.amqp.protocol.codec import BASIC, CONTENT_START, PublishArguments
from broker_plugin.embedded.errors import AmqpError, precondition

PIECE_BYTES = 50
"""That a piece of a body is counted for beside its own bytes, until the body is complete."""


class IncomingContent:
    """What a channel reads between a publish and the end of its content, and nothing while it reads none.

    ``arguments`` are those of the publish that waits for its content (None: none does), ``properties`` what its header
    says (None: the header has not come).
    """

    def __init__(self, connection: ClientConnection) -> None:
        self._connection = connection
        self._held = 0
        self.arguments: PublishArguments | None = None
        self.properties: bytes | None = None
        self._missing = 0
        self._pieces: list[bytes] = []

    def begin(self, arguments: PublishArguments) -> None:
        """A publish; its content must come next."""
        self.arguments = arguments

    def header(self, payload: bytes, max_bytes: int) -> bool:
        """A content header's frame; whether the content is complete with it. 502, 505, and 406 if it is too large."""
        if self.arguments is None or self.properties is not None:
            raise self.unexpected()
        if len(payload) < 14:
            raise AmqpError(502, "content header is cut short")
        class_id, _, size = CONTENT_START.unpack_from(payload)
        if class_id != BASIC:
            raise AmqpError(
                505, f"expected content header for class 60, got one for class {class_id} instead", hard=True
            )
        if size > max_bytes:
            raise precondition(f"message size {size} is larger than configured max size {max_bytes}")
        self.properties = payload[12:]
        self._hold(len(payload))
        self._missing = size
        return not size

    def body(self, payload: bytes) -> bool:
        """A body's frame; whether the content is complete with it. 505 if none may come, or not so much."""
        if self.properties is None:
            raise self.unexpected()
        self._missing -= len(payload)
        if self._missing < 0:
            raise self.unexpected()
        if payload:
            self._pieces.append(payload)
            self._hold(len(payload) + PIECE_BYTES)
        return not self._missing

    def take(self) -> tuple[PublishArguments, bytes, bytes]:
        """The publish whose content is complete: arguments, properties, body. None is read any more."""
        arguments, properties, pieces = self.arguments, self.properties, self._pieces
        assert arguments is not None and properties is not None
        self.drop()
        return arguments, properties, pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def drop(self) -> None:
        """Forget what has come of it."""
        self.arguments = self.properties = None
        self._pieces = []
        self._missing = 0
        self._hold(-self._held)

    def _hold(self, size: int) -> None:
        self._held += size
        self._connection.content_bytes += size

    def unexpected(self) -> AmqpError:
        """505 for a frame of another kind than the one that must come now."""
        if self.arguments is None:
            return AmqpError(505, "expected method frame, got non method frame instead")
        if self.properties is None:
            return AmqpError(505, "expected content header for class 60, got non content header frame instead")
        return AmqpError(505, "expected content body, got non content body frame instead")
