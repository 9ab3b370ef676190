"""NodeConnection: a reader's connection to the peer port of a running node, from the proof on; blocking.

A reader proves itself by the secret for readers, or by the cluster's. It is read from its file when a connection is
made, so what is sent to other processes, or shown, is only where it stands. Over TLS it shows a certificate, which may
stand in for the secret (``recovery.reader.tls_socket``).
"""

from __future__ import annotations

import os
import secrets
import socket

from ha.messages.greeting import Hello
from ha.messages.proof import CERTIFIED, MAX_UNPROVEN, NONCE, READER, DiallerProof, LinkSession
from ha.messages.seals import LENGTH
from recovery.reader.log_wire import MAX_ANSWER, decode_greeting
from recovery.reader.tls_socket import ReaderCertificate, TlsSocket
from recovery.secret_file import MARK, SecretFileError, read_link_secrets

READ_SECRET = "TXHA_READ_SECRET"
"""Environment: the secret of a reader, or ``@FILE`` in which it stands, where no file is named otherwise."""
DEADLINE_SECONDS = 15.0
_PIECE = 1 << 20


def reader_secret(file: str | None, certified: bool = False) -> bytes:
    """What stands in this file, or is in the environment; none is needed where the reader is ``certified``.

    Raises ValueError, which tells nothing of it.
    """
    given = os.environ.get(READ_SECRET) if file is None else MARK + file
    if not given and certified:
        return CERTIFIED
    if not given:
        raise ValueError(
            f"a reader must prove that it knows a secret: name the file in which it stands (secretFile), or set "
            f"{READ_SECRET}"
        )
    try:
        found = read_link_secrets(given)
    except SecretFileError as error:
        raise ValueError(str(error)) from None
    if not (usable := [secret for secret in found if secret != CERTIFIED or certified]):
        raise ValueError("a reader without a certificate must prove that it knows a secret")
    return usable[0]


class NotReached(OSError):
    """Raised when nothing takes a connection at the address."""


class NodeConnection:
    """To the node at ``address``, ``host:port``; ``hello`` is its greeting.

    Raises NotReached, and from then on OSError and ValueError when it ends, or says something else than a node says.
    """

    def __init__(self, address: str, secret: bytes, certificate: ReaderCertificate | None = None) -> None:
        context = None if certificate is None else certificate.context()
        host, _, port = address.rpartition(":")
        try:
            connected = socket.create_connection((host, int(port)), DEADLINE_SECONDS)
        except (OSError, ValueError, OverflowError) as error:
            raise NotReached(str(error) or type(error).__name__) from error
        self._socket: socket.socket | TlsSocket = connected
        self._buffer = bytearray()
        try:
            if context is not None:
                self._socket = TlsSocket(connected, context)
            self._session = self._prove(DiallerProof(secret, READER, secrets.token_bytes(NONCE)))
            greeting = decode_greeting(self.receive())
            if not isinstance(greeting, Hello):
                raise ValueError("it greets otherwise than a node")
            self._check_name(greeting)
        except BaseException:
            self.close()
            raise
        self.hello = greeting

    def send(self, message: bytes) -> None:
        """One message."""
        self._socket.sendall(self._session.sealer.seal(message))

    def receive(self) -> bytes:
        """The next message."""
        while (found := self._session.unsealer.message(self._buffer, 0, MAX_ANSWER)) is None:
            self._more()
        del self._buffer[: found[1]]
        return found[0]

    def close(self) -> None:
        """End it."""
        self._socket.close()

    def _check_name(self, greeting: Hello) -> None:
        if isinstance(self._socket, TlsSocket):
            name = self._socket.name
            if (name.cluster, name.name) != (greeting.cluster, greeting.node):
                raise ValueError(
                    f"it greets as {greeting.node} of {greeting.cluster}, and its certificate is {name.uri}"
                )

    def _prove(self, proof: DiallerProof) -> LinkSession:
        answered = False
        while True:
            try:
                answer, session = proof.take(self._unproven())
            except EOFError:
                if answered:
                    raise ValueError("it ends the connection: it accepts another secret, as its log says") from None
                raise ValueError("it ends the connection") from None
            if session is not None:
                return session
            self._socket.sendall(LENGTH.pack(len(answer)) + answer)
            answered = True

    def _unproven(self) -> bytes:
        """The next step of the proof. Raises EOFError where the node ends the connection instead."""
        (length,) = LENGTH.unpack(self._exactly(LENGTH.size))
        if length > MAX_UNPROVEN:
            raise ValueError(f"a message of {length} bytes before it proves who it is")
        return self._exactly(length)

    def _exactly(self, size: int) -> bytes:
        """Of what is not sealed yet; what comes behind it stays."""
        while len(self._buffer) < size:
            try:
                more = self._socket.recv(_PIECE)
            except ConnectionResetError:
                more = b""
            if not more:
                raise EOFError
            self._buffer += more
        found = bytes(self._buffer[:size])
        del self._buffer[:size]
        return found

    def _more(self) -> None:
        more = self._socket.recv(_PIECE)
        if not more:
            raise ValueError("it ends the connection")
        self._buffer += more
