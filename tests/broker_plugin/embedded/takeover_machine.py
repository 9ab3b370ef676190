"""The same, and the primary fails: with everything at rest, or while publishes and commits are on their way.

What is on its way has happened as a whole or not at all, and has happened if it was answered. Everything else is as
the model has it: durable queues keep what they held, in order, also what a client held.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from hypothesis import strategies as st
from hypothesis.stateful import rule

from tests.broker_plugin.embedded.both_sides import MODES
from tests.broker_plugin.embedded.broker_machine import BrokerMachine
from tests.broker_plugin.embedded.model import Copy
from txobserver.ports.ledger import pages

Place = tuple[str, bytes]
"""A message in a queue: the queue's name, the body."""


@dataclass
class Underway:
    """Messages that enter queues and leave queues together; ``answered`` tells whether a client was told so."""

    answered: Callable[[], bool]
    enters: list[Place] = field(default_factory=list)
    leaves: list[Place] = field(default_factory=list)

    def happened(self, there: set[Place], taken: set[Place]) -> bool:
        """Whether it did; what a client has ``taken`` since says nothing. Fails if one half of it did."""
        parts = [each in there for each in self.enters if each not in taken] + [e not in there for e in self.leaves]
        assert all(parts) or not any(parts), f"half of {self}"
        assert all(parts) or not self.answered(), f"{self} was answered and is lost"
        return bool(parts) and all(parts)


WHERE = st.lists(st.sampled_from([("", "a"), ("", "b"), ("", "c"), ("amq.fanout", "")]), max_size=4)
"""Exchanges and routing keys."""

TX_SLOT = next(slot for slot, mode in MODES.items() if mode == "tx")


class TakeOverMachine(BrokerMachine):
    """After a take-over all clients connect anew."""

    @rule(where=WHERE, together=st.none() | WHERE, steps=st.integers(0, 12), all_at_once=st.booleans())
    def take_over(
        self, where: list[tuple[str, str]], together: list[tuple[str, str]] | None, steps: int, all_at_once: bool
    ) -> None:
        """``together``: what one more transaction publishes before all are committed (None: none is)."""
        for exchange, key in together or []:
            self.publish(TX_SLOT, exchange, key, {}, False)
        commits = self.ask_commits() if together is not None else []
        publishes = self.ask_publishes(where)
        self.harness.progress(steps)
        handed_out, taken = self.handed_out()
        self.harness.crash(all_at_once)
        self.harness.settle()
        self.forget_clients()
        self.reckon(publishes, commits, handed_out, taken)

    def ask_publishes(self, where: list[tuple[str, str]]) -> list[Underway]:
        """Publishes of one more client, with confirms."""
        client = self.harness.client()
        client.channel.mode.select_confirms()
        underway = []
        for number, (exchange, key) in enumerate(where, 1):
            body = next(self.bodies).encode()
            names = self.model.routing.route(exchange, key, {}) if exchange else {key} & self.model.queues.keys()
            client.publish(key, body, exchange=exchange)
            each = Underway(lambda n=number: n in client.confirmed_numbers())  # type: ignore[misc]
            each.enters = [(name, body) for name in names if self.model.queues[name].lasting]
            underway.append(each)
        return underway

    def ask_commits(self) -> list[Underway]:
        """The commit of every transaction that is open."""
        underway = []
        for slot, channel in self.channels.items():
            if channel.mode == "tx":
                answers = self.clients[slot].ask_commit()
                each = Underway(lambda a=answers: a == ["ok"])  # type: ignore[misc]
                alive = [queue for queue in self.model.queues.values() if queue.lasting]
                each.enters = [(q.name, body) for qs, body, _ in channel.published for q in qs if q in alive]
                settled = [held for _, held, back in channel.settled if not back and held.queue in alive]
                each.leaves = [(held.queue.name, held.copy.body) for held in settled if held.copy in held.queue.out]
                underway.append(each)
        return underway

    def handed_out(self) -> tuple[set[Place], set[Place]]:
        """What has been in a client's hands so far, and what was taken without acknowledgement just now."""
        queues = self.model.queues.items()
        seen = {(name, copy.body) for name, queue in queues for copy in queue.all() if copy.seen or copy in queue.out}
        taken = set()
        for client, delivery in self.record:
            channel = next(channel for slot, channel in self.channels.items() if self.clients[slot] is client)
            consumer = channel.consumers[delivery.consumer]
            (taken if consumer.no_ack else seen).add((consumer.queue.name, delivery.body))
        return seen | taken, taken

    def reckon(
        self, publishes: list[Underway], commits: list[Underway], handed_out: set[Place], taken: set[Place]
    ) -> None:
        """What is there must follow from what was there and what was on its way. The model goes on from it."""
        content = self.harness.content
        specs = content.configuration.queues
        found = {
            name: [
                Copy(offset, entry.message.body, offset <= content.summary(spec.number).watermark)
                for offset, entry in pages(content, spec.number)
            ]
            for name, spec in specs.items()
        }
        assert found.keys() == {name for name, queue in self.model.queues.items() if queue.lasting}
        there = {(name, copy.body) for name, copies in found.items() for copy in copies}
        told = [each.happened(there, taken) for each in publishes if set(each.enters) - taken]
        assert told == sorted(told, reverse=True), "a later publish of a client is there, an earlier one is not"
        happened = [each for each in commits if each.happened(there, taken)]
        gone = {offset for each in happened for offset in each.leaves}
        for name, copies in found.items():
            bodies = [copy.body for copy in copies]
            before = [copy.body for copy in self.model.queues[name].all()]
            old = [body for body in before if body in bodies]
            assert {(name, body) for body in before if body not in old} <= gone | taken, f"{name} lost messages"
            assert bodies[: len(old)] == old, f"{name} changed its order"
            for group in ([at for each in publishes for at in each.enters], *(each.enters for each in happened)):
                mine = [body for queue, body in group if queue == name and body in bodies]
                assert [body for body in bodies[len(old) :] if body in mine] == mine, f"{name} has a wrong order"
            known = {offset for each in publishes + happened for offset in each.enters}
            assert {(name, body) for body in bodies[len(old) :]} <= known, f"{name} has messages from nowhere"
            assert all(copy.seen for copy in copies if (name, copy.body) in handed_out), f"{name} forgot its mark"
        self.model.take_over(found)
