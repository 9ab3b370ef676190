"""What clients of every make have in common: conversations with a broker, as generators that know no make.

A conversation (``Steps``) yields what it wants done, and is sent the answer, or is thrown ``Refused`` or ``Lost``. A
make carries it out: blocking in ``with_pika``, in an event loop in ``with_aio_pika``. So the rules for lost answers
stand once, and can be tested without a connection.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Generator
from enum import Enum, auto
from typing import Any, NamedTuple, TypeAlias, TypeVar

from recovery.dtx.errors import OperationalError, OutcomeUnknown, refused
from txobserver.dtx_wire import DtxMethod
from txobserver.outcomes import BranchOutcome

PATIENCE = 30.0
"""Seconds for which a lost answer is asked for, or a host looked for."""

PAUSE = 0.05
"""Seconds between two questions."""

T = TypeVar("T")


class Reconnect(NamedTuple):
    """Wanted: an open channel in the right mode; on the connection if that lives, else at the next host that answers.

    Nothing to do if there is one. Tried once at each host; Lost if none answers. The answer: whether messages that a
    lost channel had delivered are delivered again, which the client's user has not been told.
    """


class Pause(NamedTuple):
    """Wanted: to wait for so many seconds."""

    seconds: float


class Plain(Enum):
    """Wanted: a method of class tx, and its answer."""

    COMMIT = auto()
    ROLLBACK = auto()


Request: TypeAlias = DtxMethod | Plain | Reconnect | Pause
Steps: TypeAlias = Generator[Request, Any, T]


class Lost(Exception):
    """The connection or the channel went, or had gone: it is not known whether the request has arrived."""


class LoginDenied(Lost):
    """No host lets this user in, of those that answer: to ask again changes nothing. The text is a sentence."""


class Refused(Exception):
    """The broker has closed the channel, with this code and sentence."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(code, text)
        self.code = code
        self.text = text


class Deadline:
    """It ends ``seconds`` after it was made. ``outcome`` is the last that was heard of what it is about."""

    def __init__(self, seconds: float) -> None:
        self._until = time.monotonic() + seconds
        self.outcome: BranchOutcome | None = None

    @property
    def over(self) -> bool:
        """Whether to give up."""
        return time.monotonic() >= self._until

    def wait(self, what: str) -> Steps[None]:
        """A moment. Raises OutcomeUnknown behind the deadline."""
        if self.over:
            heard = "no answer" if self.outcome is None else f"last heard: {self.outcome.name.lower()}"
            raise OutcomeUnknown(f"the outcome of {what} is unknown ({heard})", self.outcome)
        yield Pause(PAUSE)


class Conversation:
    """Asks, and asks again. ``patience`` in seconds."""

    def __init__(self, patience: float = PATIENCE) -> None:
        self._patience = patience

    def deadline(self) -> Deadline:
        """The deadline, counted from now."""
        return Deadline(self._patience)

    def reopen(self, deadline: Deadline) -> Steps[bool]:
        """Until there is a channel; the answer to ``Reconnect``.

        Raises Lost behind the deadline, and LoginDenied at once.
        """
        while True:
            try:
                return bool((yield Reconnect()))
            except LoginDenied:
                raise
            except Lost:
                if deadline.over:
                    raise
                yield Pause(PAUSE)

    def connect(self) -> Steps[bool]:
        """The same for people. Raises OperationalError."""
        try:
            return (yield from self.reopen(self.deadline()))
        except LoginDenied as refusal:
            raise OperationalError(str(refusal)) from refusal
        except Lost as loss:
            raise OperationalError(f"no host answers: {loss}") from loss

    def ask(self, request: DtxMethod | Plain) -> Steps[Any]:
        """Once. Raises Lost, and the error for a refusal, behind which there is a channel again if that can be."""
        try:
            return (yield request)
        except Refused as refusal:
            with contextlib.suppress(Lost):  # the next request will notice
                yield Reconnect()
            raise refused(refusal.code, refusal.text) from refusal

    def insist(self, request: DtxMethod) -> Steps[Any]:
        """Until there is an answer: for what may be asked twice. Raises the error for a refusal, OperationalError."""
        deadline = self.deadline()
        while True:
            try:
                return (yield from self.ask(request))
            except Lost as loss:
                if deadline.over:
                    raise OperationalError(f"no host answers: {loss}") from loss
                yield from self.connect()
