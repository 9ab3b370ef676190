"""Plays a program against one broker.

After each step there is a barrier, so that what follows on another connection finds all of it done: each channel that
is open ends a consumer that is not there, which a broker answers behind whatever the channel has asked, and a publish
to a durable queue is confirmed, which comes behind whatever has been changed before. Both happen more than once: what a
change brings about by itself (a delivery, the end of an auto-delete queue) is then done too.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from python_tests.suites.amqp_programs.address import Address
from python_tests.suites.amqp_programs.client import Silence
from python_tests.suites.amqp_programs.contents import contents
from python_tests.suites.amqp_programs.control import Control
from python_tests.suites.amqp_programs.link import Link
from python_tests.suites.amqp_programs.program import Program, Step
from python_tests.suites.amqp_programs.races import Race, Turn
from python_tests.suites.amqp_programs.transcript import Lines, by_channel
from python_tests.suites.amqp_programs.values import EXCHANGES, QUEUES, UNORDERED

FEW, ROUNDS = 2, 4
"""How often a barrier is passed: at first, and when answers differ, for a change may need several turns."""

GAPS = (0.0, 0.0, 0.0003, 0.001)
"""Seconds between what two racers send, by turn."""

NAMES = {"queue": (*QUEUES, "q5", UNORDERED, "q7", "q9"), "exchange": (*EXCHANGES, "e9")}
"""What a run that was killed may have left."""

Answers = dict[str, Lines]
"""By channel."""


class Player:
    """Plays programs one after the other; between them the broker is empty. ``racing`` is entered before racers send,
    and left when they have sent.
    """

    def __init__(self, address: Address, racing: Callable[[], AbstractContextManager[None]] = nullcontext) -> None:
        self._address = address
        self._racing = racing
        self._control = Control(address)
        self.product = self._control.product
        self._rounds = ROUNDS
        for kind, names in NAMES.items():
            for name in names:
                self._control.ask(f"{kind}.delete", {kind: name})
        self._links: dict[str, Link] = {}
        self._named: list[str] = []

    def play(self, program: Program, rounds: int = ROUNDS) -> list[Answers]:
        """What is answered to each step, and at the end what is in the queues. Silence ends a program early."""
        self._rounds = rounds
        found: list[Answers] = []
        try:
            for step in program:
                found.append(self._step(step))
            found += self._ending(program)
        except Silence as error:
            found.append(self._silent(error))
        finally:
            self._leave(program)
        return found

    def _ending(self, program: Program) -> list[Answers]:
        for link in self._links.values():
            link.close()
        self._control.pass_by()
        return [contents(self._address, program, self._named, self._control.pass_by)]

    def _silent(self, error: Silence) -> Answers:
        self._control.close()
        self._control = Control(self._address)
        return {"0": [f"silence: {error}"]}

    def _leave(self, program: Program) -> None:
        for link in self._links.values():
            link.client.close()
        self._links.clear()
        self._clean(program)

    def race(self, race: Race, turn: int) -> list[Answers]:
        """What a race leads to: what its racers are answered, and at the end what is in the queues. ``turn``: which
        racer sends first, and how long after it the next one does.
        """
        return self._judged(race, lambda: self._at_once(race, turn))

    def in_order(self, race: Race, turns: Sequence[Turn]) -> list[Answers]:
        """The same requests, each when the one before it has been done. What stands behind the end of its channel or
        connection is left out.
        """
        return self._judged(race, lambda: self._one_by_one(race, turns))

    def _judged(self, race: Race, play: Callable[[], None]) -> list[Answers]:
        self._rounds = ROUNDS
        found: list[Answers] = []
        try:
            for step in race.setup:
                self._step(step)
            for step in race.racers:
                self._link(step).open(step)
            play()
            found.append(self._answers(many=False))
            found += self._ending(race.program)
        except Silence as error:
            found.append(self._silent(error))
        finally:
            self._leave(race.program)
        return found

    def _at_once(self, race: Race, turn: int) -> None:
        steps = [race.racers[(turn + number) % len(race.racers)] for number in range(len(race.racers))]
        signs = [self._link(step).drops(step) for step in steps]
        with self._racing():
            for step in steps:
                self._link(step).send(step)
                time.sleep(GAPS[turn % len(GAPS)])
        for link in self._links.values():
            link.wait_for_commits()
        for sign in filter(None, signs):
            self._control.wait_until_gone(sign)
        self._pass_barriers()

    def _one_by_one(self, race: Race, turns: Sequence[Turn]) -> None:
        for number, op in turns:
            link = self._links[race.racers[number].connection]
            if link.takes(op.channel):
                self._send(link, Step(race.racers[number].connection, (op,)))

    def close(self) -> None:
        """Leave the broker."""
        self._control.close()

    def _step(self, step: Step) -> Answers:
        self._send(self._link(step), step)
        return self._answers(len(step.ops) > 1)

    def _link(self, step: Step) -> Link:
        link = self._links.get(step.connection)
        if link is None or link.client.ended:
            number = list(self._links).index(step.connection) if link else len(self._links)
            link = self._links[step.connection] = Link(self._address, self._named, number)
        return link

    def _send(self, link: Link, step: Step) -> None:
        sign = link.drops(step)
        link.send(step)
        link.wait_for_commits()
        if sign:
            self._control.wait_until_gone(sign)
        self._pass_barriers()

    def _pass_barriers(self) -> None:
        for _ in range(self._rounds):
            for each in self._links.values():
                each.ask_all()
            for each in self._links.values():
                each.read()
            self._control.pass_by()

    def _answers(self, many: bool) -> Answers:
        found: Answers = {}
        for name, each in self._links.items():
            received, each.received = each.received, []
            for channel, lines in by_channel(received, each.confirmed, many).items():
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
