"""What one channel of a client holds, as the client sees it; so a program can say "the second of what is there"."""

from __future__ import annotations

from collections import deque

from python_tests.suites.amqp_programs.client import Received
from python_tests.suites.amqp_programs.program import Op

SETTLING = ("basic.ack", "basic.nack", "basic.reject")


class Outstanding:
    """Delivery tags that this channel may settle."""

    def __init__(self) -> None:
        self._tags: list[int] = []
        self._no_ack: set[str] = set()
        self._gets: deque[bool] = deque()
        self._transactional = False
        self._in_transaction: list[int] = []
        self._named = ""

    def resolve(self, op: Op) -> Op | None:
        """The operation with a number for its delivery, which is settled with that; None if nothing is there."""
        arguments = dict(op.arguments)
        if isinstance(nth := arguments.get("delivery"), list):
            if not self._tags:
                return None
            arguments["delivery"] = self._tags[nth[0] % len(self._tags)]
        if arguments.get("tag") == "$":
            arguments["tag"] = self._named
        self._know(op.name, arguments)
        return Op(op.channel, op.name, arguments)

    def _know(self, name: str, arguments: dict[str, object]) -> None:
        if name in SETTLING:
            self._settle(int(str(arguments["delivery"])), bool(arguments.get("multiple")))
        elif name == "basic.get":
            self._gets.append(bool(arguments.get("no_ack")))
        elif name == "basic.consume" and arguments.get("no_ack"):
            self._no_ack.add(str(arguments.get("tag")))
        elif name.startswith("basic.recover"):
            self._tags.clear()
        elif name == "tx.select":
            self._transactional = True
        elif name == "tx.commit":
            self._in_transaction.clear()
        elif name == "tx.rollback":
            self._tags = sorted({*self._tags, *self._in_transaction})
            self._in_transaction.clear()

    def _settle(self, tag: int, multiple: bool) -> None:
        gone = [each for each in self._tags if each == tag or (multiple and (each < tag or not tag))]
        self._tags = [each for each in self._tags if each not in gone]
        if self._transactional:
            self._in_transaction += gone

    def saw(self, received: Received) -> None:
        """Something has come on this channel."""
        if received.name == "basic.get-empty" and self._gets:
            self._gets.popleft()
        elif received.name == "basic.get-ok":
            if not (self._gets and self._gets.popleft()):
                self._tags.append(received.fields["delivery"])
        elif received.name == "basic.deliver" and received.fields["tag"] not in self._no_ack:
            self._tags.append(received.fields["delivery"])
        elif received.name == "basic.consume-ok" and received.fields["tag"].startswith("amq.ctag"):
            self._named = received.fields["tag"]
