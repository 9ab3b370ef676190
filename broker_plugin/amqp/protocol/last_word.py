"""The last word to a client whose node serves no more: what became of all that was not answered.

Promise: a client is told "not done" only of what was not done, as its program sees it.

That is more than the order of bytes. The libraries of clients drop an answer that they read in one go with
connection.close: the program gets the error of the close, and not the commit-ok before it. So a client that was just
answered must have heard the answer before it may be told that what was not answered was not done. It has, when
something comes behind the answer on the same channel: a program waits for the outcome of what it asks there, and goes
on then. The last word waits for that, and if nothing comes in time, it names the channels on which outcomes may be
unknown. A channel on
which something came while an answer was on its way shows nothing by what comes on it: it is told the same.

What breaks a simpler version: ``answered_and_closed_in_one_go``, ``answers_forgotten_behind_not_done``.
"""

from __future__ import annotations

from collections.abc import Iterable

from pamqp import commands

from broker_plugin.amqp.protocol.codec import FRAME_START, OVERHEAD, encode_close
from broker_plugin.embedded.errors import Forced


def channels_in(data: bytes) -> set[int]:
    """The numbers of the channels of which a frame begins in these bytes, the first with the first of them."""
    found, at = set(), 0
    while at + OVERHEAD - 1 <= len(data):
        _, number, size = FRAME_START.unpack_from(data, at)
        found.add(number)
        at += size + OVERHEAD
    return found


class LastWord:
    """Of one connection. ``answers_lost``: an answer was forgotten that the client will not hear.

    ``waits``: the last word is due, and is held back for what the client has not shown to have heard.
    """

    def __init__(self) -> None:
        self.answers_lost = False
        self._error: Forced | None = None
        self._unheard: set[int] = set()
        self._said = False

    @property
    def due(self) -> bool:
        """Whether the client is to hear it, or has been sent it."""
        return self._error is not None

    @property
    def waits(self) -> bool:
        """Whether it is due, and has not been said."""
        return self._error is not None and not self._said

    def begin(self, error: Forced, unheard: Iterable[int]) -> bytes:
        """It is due; what is to be sent now. ``unheard``: channels on which the client must say something before."""
        self._error = error
        self._unheard = set() if error.undecided else set(unheard)
        return b"" if self._unheard else self._say(error)

    def heard(self, number: int) -> bytes:
        """Something has come on this channel; what is to be sent now."""
        if not self.waits:
            return b""
        self._unheard.discard(number)
        assert self._error is not None
        return b"" if self._unheard else self._say(self._error)

    def time_is_up(self) -> bytes:
        """The client has not shown that it has heard all; what is to be sent now."""
        if not self.waits:
            return b""
        assert self._error is not None
        return self._say(Forced(self._error.reason, False, {abs(number) for number in self._unheard}))

    def forget(self, output: list[bytes]) -> list[bytes]:
        """What of this is sent all the same, where nothing of it may be told any more: this word, if it is the last."""
        last = output[-1:] if self._said else []
        if len(output) > len(last):
            self.answers_lost = True
            if last and self._error is not None:
                last = [self._say(self._error)]
        return last

    def _say(self, error: Forced) -> bytes:
        self._said = True
        told = Forced(error.reason, True) if self.answers_lost else error
        return encode_close(commands.Connection.Close, told, 0)
