"""Plays a program against one broker.

After each step there is a barrier, so that what follows on another connection finds all of it done: each channel that
is open purges an empty queue, which a broker answers behind whatever the channel has published, and a publish to a
durable queue is confirmed, which comes behind whatever has been changed before. Both happen more than once: what a
change brings about by itself (a delivery, the end of an auto-delete queue) is then done too.
"""

from __future__ import annotations

from typing import Any

from python_tests.amqp_programs.client import Client, Received, Silence
from python_tests.amqp_programs.contents import contents
from python_tests.amqp_programs.outstanding import Outstanding
from python_tests.amqp_programs.program import Op, Program, Step, octets_of, pieces
from python_tests.amqp_programs.transcript import Confirmed, Lines, by_channel

EMPTY, BEHIND = "zz.empty", "zz.behind"
ROUNDS = 4

Answers = dict[str, Lines]
"""By channel."""


class Control:
    """A connection beside those of the programs, for barriers and for cleaning up."""

    def __init__(self, port: int) -> None:
        self.port = port
        self._client = Client(port)
        self.ask("channel.open", {})
        self.ask("queue.declare", {"queue": EMPTY})
        self.ask("queue.declare", {"queue": BEHIND, "durable": True})
        self.ask("queue.purge", {"queue": BEHIND})
        self.ask("confirm.select", {})
        self._published = 0

    def ask(self, name: str, arguments: dict[str, object]) -> Received:
        """One request on channel 1, and its answer."""
        self._client.send(1, name, arguments)
        return self._client.until((f"{name}-ok",))

    def pass_by(self) -> None:
        """Until everything that was asked before has been done."""
        self._published += 1
        publish = Op(1, "basic.publish", {"exchange": "", "key": BEHIND, "body": "behind"})
        self._client.send_bytes(octets_of((publish,), 0))
        while self._client.until(("basic.ack",)).fields["delivery"] < self._published:
            pass
        if self._published % 500 == 0:
            self.ask("queue.purge", {"queue": BEHIND})

    def close(self) -> None:
        """Leave nothing behind."""
        self.ask("queue.delete", {"queue": EMPTY})
        self.ask("queue.delete", {"queue": BEHIND})
        self._client.close()


class Link:
    """One connection of a program: which channels are open, and what has been delivered on each.

    ``named`` are the queues that the broker has named; an operation means one of them by ``$`` and a number.
    """

    def __init__(self, port: int, named: list[str]) -> None:
        self.client = Client(port)
        self.confirmed: dict[int, Confirmed] = {}
        self.received: list[Received] = []
        self._named = named
        self._open: set[int] = set()
        self._outstanding: dict[int, Outstanding] = {}
        self._asked: set[int] = set()
        self._own: dict[int, int] = {}
        self._leaving: set[int] = set()
        self._unconfirmed: dict[int, int] = {}
        self._committing: set[int] = set()

    def send(self, step: Step) -> None:
        """Open what is not open, send the operations, and know which channels may be asked afterwards."""
        for number in sorted({op.channel for op in step.ops if op.channel} - self._open):
            first = next(op for op in step.ops if op.channel == number)
            if first.name != "channel.open" and not first.arguments.get("unopened"):
                self._open_channel(number)
        sent = [op for op in map(self._resolved, step.ops) if op is not None]
        for piece in pieces(octets_of(sent, step.order), step.writes):
            self.client.send_bytes(piece)
        self._own = {}
        for op in sent:
            self._sent(op)

    def _sent(self, op: Op) -> None:
        if op.name == "queue.purge" and not op.arguments.get("nowait"):
            self._own[op.channel] = self._own.get(op.channel, 0) + 1
        elif op.name == "basic.publish" and op.channel in self._unconfirmed:
            self._unconfirmed[op.channel] += not op.arguments.get("cut")
        elif op.name == "confirm.select":
            self._unconfirmed.setdefault(op.channel, 0)
        elif op.name == "tx.commit":
            self._committing.add(op.channel)
        elif op.name == "channel.open":
            self._open.add(op.channel)
            self._leaving.discard(op.channel)
        elif op.name == "channel.close" and op.channel in self._open:
            self._open.discard(op.channel)
            self._leaving.add(op.channel)
        elif op.name == "connection.close" and not op.channel:
            self._open.clear()
            self._leaving.add(0)

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
        """Send each open channel's barrier."""
        self._asked = set(self._open)
        for number in sorted(self._open):
            self.client.send(number, "queue.purge", {"queue": EMPTY})

    def read(self) -> None:
        """Until every barrier is answered, or its channel has ended, and whatever is being closed is closed.

        A commit, and confirms, may come later than the barrier: a disk may have to be waited for.
        """
        while not self.client.ended and (
            self._asked or self._leaving or self._committing or any(self._unconfirmed.values())
        ):
            received = self.client.next()
            if received is None:
                break
            if received.name == "queue.purge-ok" and not self._own.get(received.channel):
                self._asked.discard(received.channel)
            else:
                self._take(received)
        if self.client.ended:
            self._open.clear()

    def _take(self, received: Received) -> None:
        self.received.append(received)
        number = received.channel
        if received.name == "queue.purge-ok":
            self._own[number] -= 1
        elif received.name == "queue.declare-ok" and received.fields["queue"].startswith("amq.gen-"):
            self._named.append(received.fields["queue"])
        elif received.name in ("channel.close", "channel.close-ok"):
            if received.name == "channel.close":
                self.client.send(number, "channel.close-ok")
            for known in (self._open, self._asked, self._leaving, self._committing):
                known.discard(number)
            self._outstanding.pop(number, None)
            self._unconfirmed.pop(number, None)
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


class Player:
    """Plays programs one after the other; between them the broker is empty."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._control = Control(port)
        self._links: dict[str, Link] = {}
        self._named: list[str] = []

    def play(self, program: Program) -> list[Answers]:
        """What is answered to each step, and at the end what is in the queues. Silence ends a program early."""
        found: list[Answers] = []
        try:
            for step in program:
                found.append(self._step(step))
            for link in self._links.values():
                link.close()
            self._control.pass_by()
            found.append(contents(self._port, program, self._named, self._control.pass_by))
        except Silence as error:
            found.append({"0": [f"silence: {error}"]})
            self._control.close()
            self._control = Control(self._port)
        finally:
            for link in self._links.values():
                link.client.close()
            self._links.clear()
            self._clean(program)
        return found

    def close(self) -> None:
        """Leave the broker."""
        self._control.close()

    def _step(self, step: Step) -> Answers:
        link = self._links.get(step.connection)
        if link is None or link.client.ended:
            link = self._links[step.connection] = Link(self._port, self._named)
        link.send(step)
        link.wait_for_commits()
        for _ in range(ROUNDS):
            for each in self._links.values():
                each.ask_all()
            for each in self._links.values():
                each.read()
            self._control.pass_by()
        found: Answers = {}
        for name, each in self._links.items():
            received, each.received = each.received, []
            for channel, lines in by_channel(received, each.confirmed, len(step.ops) > 1).items():
                found[f"{name}.{channel}"] = lines
        return found

    def _clean(self, program: Program) -> None:
        names: dict[tuple[str, str], Any] = {}
        for op in (op for step in program for op in step.ops):
            kind = op.name.split(".")[0]
            name = op.arguments.get(kind, "")
            if op.name.endswith(".declare") and name and not name.startswith("amq.") and name.isascii():
                names[kind, name] = None
        names.update({("queue", name): None for name in self._named})
        self._named.clear()
        for kind, name in names:
            self._control.ask(f"{kind}.delete", {kind: name})
        for op in (op for step in program for op in step.ops if op.name == "exchange.bind"):
            if all(str(op.arguments[end]).startswith("amq.") for end in ("source", "destination")):
                self._control.ask("exchange.unbind", {**op.arguments, "nowait": False})
