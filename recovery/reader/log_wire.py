"""Reading the log of a running node over its peer port: the messages, and who may say what.

    message: a msgpack array, under the seals of a link (``ha.messages.seals``)

Before any, node and reader prove to each other that they know a secret (``ha.messages.proof``). The node greets as it
greets a peer (``ha.messages.greeting.Hello``). A reader greets with ReadHello and asks; each question has one answer,
and the next question comes after it. Nothing that a reader can send changes anything.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from ha.messages.greeting import Hello
from ha.messages.numbers import Number

READ_VERSION = 1
MAX_QUESTION = 256
"""Bytes of anything that a reader sends behind its greeting."""
MAX_PORTION = 4 << 20
"""Bytes of frames in one answer; one more frame at most, however large that is."""
MAX_ANSWER = 1 << 31
NESTED = "arrays that are nested too deep"


class ReadHello(msgspec.Struct, array_like=True, tag=100):
    """A reader's greeting: another version or cluster is refused."""

    version: int
    cluster: str


class AskExtent(msgspec.Struct, array_like=True, tag=101):
    """How far does the log go?"""


class AskFrames(msgspec.Struct, array_like=True, tag=102):
    """The frames with events from ``first`` to ``last``, as many as ``max_bytes`` allow, and one at least."""

    first: Number
    last: Number
    max_bytes: Annotated[int, msgspec.Meta(ge=1, le=MAX_PORTION)]


class LogExtent(msgspec.Struct, array_like=True, tag=103):
    """Events from ``first`` up to the commit point ``last`` can be read. ``size``: of the log, in bytes.

    ``tail``: the last event in the log. The commit point of a node that was just started is that of its last
    checkpoint: up to ``tail`` nothing is lost. None from a node of a version that does not tell it.
    """

    first: int
    last: int
    size: int
    queues: dict[int, str]
    tail: int | None = None


class LogFrames(msgspec.Struct, array_like=True, tag=104):
    """Frames in order; none if nothing of what was asked for has passed the commit point."""

    frames: list[bytes]


class NotThere(msgspec.Struct, array_like=True, tag=105):
    """What was asked for cannot be read; ``reclaimed``: the log begins later."""

    reason: str
    reclaimed: bool


Question = AskExtent | AskFrames
Answer = LogExtent | LogFrames | NotThere

encode = msgspec.msgpack.Encoder().encode
"""The bytes of a message"""
_greeting = msgspec.msgpack.Decoder(Hello | ReadHello)
_question = msgspec.msgpack.Decoder(Question)
_answer = msgspec.msgpack.Decoder(Answer)


def decode_greeting(data: bytes) -> Hello | ReadHello:
    """The first message of a connection. Raises ValueError for anything else."""
    try:
        greeting: Hello | ReadHello = _greeting.decode(data)
    except msgspec.ValidationError as error:
        raise ValueError(f"it does not greet: {error}") from None
    except RecursionError:
        raise ValueError(f"it does not greet: {NESTED}") from None
    return greeting


def decode_question(data: bytes) -> Question:
    """What a reader asks. Raises ValueError for anything else."""
    try:
        question: Question = _question.decode(data)
    except RecursionError:
        raise ValueError(NESTED) from None
    return question


def decode_answer(data: bytes) -> Answer:
    """What a node answers. Raises ValueError for anything else."""
    try:
        answer: Answer = _answer.decode(data)
    except RecursionError:
        raise ValueError(NESTED) from None
    return answer
