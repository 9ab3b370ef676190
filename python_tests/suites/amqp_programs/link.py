"""One connection of a program."""

from __future__ import annotations

from python_tests.suites.amqp_programs.address import Address
from python_tests.suites.amqp_programs.client import Client, Received
from python_tests.suites.amqp_programs.outstanding import Outstanding
from python_tests.suites.amqp_programs.program import DROP, Op, Step, octets_of, pieces
from python_tests.suites.amqp_programs.transcript import Confirmed

ALIVE, SIGN_CHANNEL = "zz.alive", 2000
"""A queue and a channel of the connection's own, beside those of the program."""
UNUSED_TAG = "zz.nobody"
"""A consumer that is not there: its end is told behind whatever the channel has asked before, and changes nothing."""


class Link:
    """One connection of a program: which channels are open, and what has been delivered on each.

    ``named`` are the queues that the broker has named; an operation means one of them by ``$`` and a number.
    """

    def __init__(self, address: Address, named: list[str], number: int) -> None:
        self.client = Client(address)
        self.confirmed: dict[int, Confirmed] = {}
        self.received: list[Received] = []
        self._named = named
        self._alive = f"{ALIVE}.{number}"
        self._open: set[int] = set()
        self._outstanding: dict[int, Outstanding] = {}
        self._asked: set[int] = set()
        self._leaving: set[int] = set()
        self._unconfirmed: dict[int, int] = {}
        self._committing: set[int] = set()
        self._consuming: dict[int, int] = {}
        self._unasked = False

    def send(self, step: Step) -> None:
        """Open what is not open, send the operations, and know which channels may be asked afterwards."""
        self.open(step)
        sent = [op for op in map(self._resolved, step.ops) if op is not None]
        self._unasked = True
        for piece in pieces(octets_of(sent, step.order), step.writes):
            self.client.send_bytes(piece)
        for op in sent:
            self._sent(op)

    def open(self, step: Step) -> None:
        """The channels of these operations, if they are not open."""
        for number in sorted({op.channel for op in step.ops if op.channel} - self._open):
            first = next(op for op in step.ops if op.channel == number)
            if first.name != "channel.open" and not first.arguments.get("unopened"):
                self._open_channel(number)

    def takes(self, channel: int) -> bool:
        """Whether something may be sent on it: neither it nor the connection has ended."""
        return not self.client.ended and (not channel or channel in self._open)

    def drops(self, step: Step) -> str:
        """The queue that will go when the broker has noticed that this step drops the socket; none if it does not, or
        if the connection is over.
        """
        if not any(op.name == DROP for op in step.ops):
            return ""
        self.client.send(SIGN_CHANNEL, "channel.open")
        self.client.send(SIGN_CHANNEL, "queue.declare", {"queue": self._alive, "exclusive": True})
        while (received := self.client.next()) is not None and received.channel != SIGN_CHANNEL:
            self._take(received)
        if self.client.ended:
            return ""
        self.client.until(("queue.declare-ok",))
        return self._alive

    def _sent(self, op: Op) -> None:
        if op.name == "basic.publish" and op.channel in self._unconfirmed:
            self._unconfirmed[op.channel] += not op.arguments.get("cut")
        elif op.name == "confirm.select":
            self._unconfirmed.setdefault(op.channel, 0)
        elif op.name == "tx.commit":
            self._committing.add(op.channel)
        elif op.name == "basic.consume" and not op.arguments.get("nowait"):
            self._consuming[op.channel] = self._consuming.get(op.channel, 0) + 1
        elif op.name == "channel.open":
            self._open.add(op.channel)
            self._leaving.discard(op.channel)
        elif op.name == "channel.close" and op.channel in self._open:
            self._open.discard(op.channel)
            self._leaving.add(op.channel)
        elif op.name == "connection.close" and not op.channel:
            self._open.clear()
            self._leaving.add(0)
        elif op.name == DROP:
            self.client.close()
            self._open.clear()
            self.received.clear()

    def _open_channel(self, number: int) -> None:
        self.client.send(number, "channel.open")
        while (received := self.client.next()) is not None and received.name != "channel.open-ok":
            self._take(received)
        self._open.add(number)
        self._outstanding[number] = Outstanding()

    def _resolved(self, op: Op) -> Op | None:
        arguments = {key: item for key, item in op.arguments.items() if key != "unopened"}
        for key in ("queue", "key", "destination"):
            if isinstance(alias := arguments.get(key), str) and alias.startswith("$"):
                arguments[key] = self._named[int(alias[1:]) % len(self._named)] if self._named else "nosuch"
        return self._outstanding.setdefault(op.channel, Outstanding()).resolve(Op(op.channel, op.name, arguments))

    def wait_for_commits(self) -> None:
        """RabbitMQ takes nothing on a channel that is committing (504)."""
        while self._committing and not self.client.ended and (received := self.client.next()) is not None:
            self._take(received)

    def ask_all(self) -> None:
        """Send each open channel's barrier. Where none is open, and something has been sent, send the connection's: the
        broker may be closing it.
        """
        self._asked = set(self._open)
        for number in sorted(self._open):
            self.client.send(number, "basic.cancel", {"tag": UNUSED_TAG})
        if not self._open and not self._leaving and self._unasked and not self.client.ended:
            self._unasked = False
            self._asked.add(SIGN_CHANNEL)
            self.client.send(SIGN_CHANNEL, "channel.open")
            self.client.send(SIGN_CHANNEL, "channel.close", {"code": 200, "text": ""})

    def read(self) -> None:
        """Until every barrier is answered, or its channel has ended, and whatever is being closed is closed.

        A commit, and confirms, may come later than the barrier: a disk may have to be waited for. So may consume-ok,
        which RabbitMQ leaves to the queue.
        """
        while not self.client.ended and (
            self._asked or self._leaving or self._committing or self._untold()
        ):
            received = self.client.next()
            if received is None:
                break
            if received.name == "basic.cancel-ok" and received.fields["tag"] == UNUSED_TAG:
                self._asked.discard(received.channel)
            elif received.channel == SIGN_CHANNEL:
                if received.name == "channel.close-ok":
                    self._asked.discard(SIGN_CHANNEL)
            else:
                self._take(received)
        if self.client.ended:
            self._open.clear()

    def _untold(self) -> bool:
        return any(self._unconfirmed.values()) or any(self._consuming.values())

    def _take(self, received: Received) -> None:
        number = received.channel
        if received.name == "channel.close-ok" and number not in self._leaving:
            return  # the broker had closed it before, which it has told; when this comes beside that is open
        self.received.append(received)
        if received.name == "queue.declare-ok" and received.fields["queue"].startswith("amq.gen-"):
            self._named.append(received.fields["queue"])
        elif received.name in ("channel.close", "channel.close-ok"):
            if received.name == "channel.close":
                self.client.send(number, "channel.close-ok")
            for known in (self._open, self._asked, self._leaving, self._committing):
                known.discard(number)
            self._outstanding.pop(number, None)
            self._unconfirmed.pop(number, None)
            self._consuming.pop(number, None)
        elif received.name == "basic.consume-ok":
            self._consuming[number] -= 1
            self._outstanding.setdefault(number, Outstanding()).saw(received)
        elif received.name == "tx.commit-ok":
            self._committing.discard(number)
        elif received.name in ("basic.ack", "basic.nack"):
            fresh = self.confirmed.setdefault(number, Confirmed()).take(received)
            self._unconfirmed[number] = self._unconfirmed.get(number, 0) - len(fresh)
        elif received.name == "connection.close":
            self.client.send(0, "connection.close-ok")
            self.client.close()
        elif received.name == "connection.close-ok":
            self.client.close()
        else:
            self._outstanding.setdefault(number, Outstanding()).saw(received)

    def close(self) -> None:
        """As a client that has done its work."""
        if not self.client.ended:
            self.send(Step("", (Op(0, "connection.close", {"code": 200, "text": "bye"}),)))
            self.read()
        self.client.close()
