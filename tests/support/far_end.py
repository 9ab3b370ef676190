"""The other end of a node's link in a test: it proves itself, seals what it says, and opens what it is told."""

from __future__ import annotations

import asyncio
import secrets
from typing import Any

from broker_plugin.node.links import LinkCredentials
from ha.messages.proof import NONCE, PEER, READER, DiallerProof, LinkSecrets, LinkSession, ListenerProof
from ha.messages.seals import LENGTH
from ha.messages.wire import encode

SECRET = b"the-secret-of-every-cluster-in-these-tests"
SECRETS = LinkSecrets([SECRET])
CREDENTIALS = LinkCredentials(SECRETS)
MOST = 1 << 30


def framed(message: bytes) -> bytes:
    """With its length in front, as steps of the proof are sent, and everything was before version 0.1.0."""
    return LENGTH.pack(len(message)) + message


class FarEnd:
    """``got``: what the node has said, under the seals, as bytes of its messages. By default it is who dialled."""

    def __init__(self, proof: DiallerProof | ListenerProof | None = None) -> None:
        self._proof = proof or dialling()
        self._buffer = bytearray()
        self._seen = 0
        self.session: LinkSession | None = None
        self.got: list[bytes] = []

    def opening(self) -> bytes:
        """What it says first."""
        return framed(self._proof.opening) if self._proof.opening else b""

    def take(self, data: bytes) -> bytes:
        """What the node has sent; returns what is to be sent in answer."""
        self._buffer += data
        answers = b""
        while True:
            if self.session is not None:
                found = self.session.unsealer.message(self._buffer, 0, MOST)
                if found is None:
                    return answers
                self.got.append(found[0])
                del self._buffer[: found[1]]
                continue
            size = int.from_bytes(self._buffer[:4], "big") if len(self._buffer) >= 4 else MOST
            if len(self._buffer) < 4 + size:
                return answers
            answer, self.session = self._proof.take(bytes(self._buffer[4 : 4 + size]))
            del self._buffer[: 4 + size]
            answers += framed(answer) if answer else b""

    def say(self, *messages: Any) -> bytes:
        """As it is sent; what is bytes already is no message but is sealed all the same."""
        assert self.session is not None, "it has not proved itself"
        seal = self.session.sealer.seal
        return b"".join(seal(each if isinstance(each, bytes) else encode(each)) for each in messages)

    def meet(self, protocol: Any, transport: Any) -> FarEnd:
        """Come to where both have proved themselves with this protocol; ``transport.written`` is what it has sent."""
        said = self.opening()
        while True:
            if said:
                protocol.data_received(said)
            said = self.hear(transport)
            if not said:
                return self

    def hear(self, transport: Any) -> bytes:
        """Take what has been sent since; returns what is to be sent in answer."""
        new, self._seen = transport.written[self._seen :], len(transport.written)
        return self.take(new)

    async def meet_there(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> FarEnd:
        """The same on a connection, up to the node's greeting."""
        writer.write(self.opening())
        while not self.got:
            writer.write(self.take(await self._more(reader)))
        return self

    async def answer(self, reader: asyncio.StreamReader) -> bytes:
        """The next message of the node behind those in ``got``, which it does not join."""
        there = len(self.got)
        while len(self.got) == there:
            self.take(await self._more(reader))
        return self.got.pop(there)

    @staticmethod
    async def _more(reader: asyncio.StreamReader) -> bytes:
        data = await reader.read(1 << 16)
        if not data:
            raise asyncio.IncompleteReadError(b"", None)
        return data


def dialling(purpose: int = PEER, secret: bytes = SECRET) -> DiallerProof:
    """The part of one who has dialled the node."""
    return DiallerProof(secret, purpose, secrets.token_bytes(NONCE))


def reading(secret: bytes = SECRET) -> FarEnd:
    """A reader of the log."""
    return FarEnd(dialling(READER, secret))


def listening(secret: bytes = SECRET) -> FarEnd:
    """A node that was dialled."""
    return FarEnd(ListenerProof(LinkSecrets([secret]), secrets.token_bytes(NONCE)))
