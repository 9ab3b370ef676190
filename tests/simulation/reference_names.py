"""The names that the stream leads to: queues, exchanges, bindings, computed anew in the plainest way (``reference``).

What a step depends on is judged here a second time, and so is what goes with it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from txobserver.configuration import Configuration
from txobserver.events import Configure, Terms

Binding = tuple[str, bool, str, str]
"""Source, whether to a queue, destination, key. No client in the simulator binds with arguments."""
Names = tuple[list[tuple[str, int, bool]], list[tuple[str, bool]], list[Binding]]
"""Queues with their numbers, exchanges, both with whether they are used; bindings."""


def names_of(configuration: Configuration) -> Names:
    """What a node has."""
    queues = [(each.name, each.number, each.used) for each in configuration.queues.values()]
    exchanges = [(each.name, each.used) for each in configuration.exchanges.values()]
    bindings = [(each.source, each.to_queue, each.destination, each.routing_key) for each in configuration.bindings]
    return sorted(queues), sorted(exchanges), sorted(bindings)


@dataclass
class ReferenceNames:
    """``queues``: number, whether used; ``exchanges``: whether auto-delete, used. ``after``: by the id of the step."""

    queues: dict[str, tuple[int, bool]] = field(default_factory=dict)
    exchanges: dict[str, tuple[bool, bool]] = field(default_factory=dict)
    bindings: set[Binding] = field(default_factory=set)
    after: dict[int, Names] = field(default_factory=dict)

    def apply(self, step: Configure, ready: Callable[[int, Terms], bool], parts: Sequence[Configure] = ()) -> bool:
        """The next step; whether it was carried out. ``ready``: whether a queue has messages at other offsets.
        ``parts``: the steps within that were carried out."""
        for part in parts:
            self._carry_out(part, ready)
        done = self._carry_out(step, ready)
        queues = sorted((name, *each) for name, each in self.queues.items())
        exchanges = sorted((name, used) for name, (_, used) in self.exchanges.items())
        self.after[step.config_id] = queues, exchanges, sorted(self.bindings)
        return done

    def _carry_out(self, step: Configure, ready: Callable[[int, Terms], bool]) -> bool:
        name, terms, what = step.name, step.terms, step.operation
        if what == "queue.declare":
            self.queues.setdefault(name, (step.config_id, False))
        elif what == "exchange.declare":
            self.exchanges.setdefault(name, (_decoded(step)[2], False))
        elif what == "queue.use" and name in self.queues:
            self.queues[name] = self.queues[name][0], True
        elif what in ("exchange.use", "exchange.leave") and name in self.exchanges:
            self.exchanges[name] = self.exchanges[name][0], what == "exchange.use"
            if what == "exchange.leave":
                self._lapse({name})
        elif what == "queue.delete":
            if terms is not None and terms.empty and name in self.queues and ready(self.queues[name][0], terms):
                return False
            self.queues.pop(name, None)
            self._lose({each for each in self.bindings if each[1:3] == (True, name)}, terms is not None)
        elif what == "exchange.delete":
            if terms is not None and terms.unused and self._in_use(name):
                return False
            self._delete_exchange(name, terms is not None)
        elif what in ("bind", "unbind"):
            return self._bind(step)
        else:
            return False
        return True

    def _bind(self, step: Configure) -> bool:
        source, destination, to_queue, key, _ = _decoded(step)
        binding = (source, to_queue, destination, key)
        if step.operation == "unbind":
            self._lose({binding} & self.bindings, step.terms is not None)
            return True
        if not self._there(source) or not (destination in self.queues if to_queue else self._there(destination)):
            return False
        self.bindings.add(binding)
        return True

    def _there(self, exchange: str) -> bool:
        return exchange in self.exchanges or exchange.startswith("amq.")

    def _in_use(self, exchange: str) -> bool:
        return exchange in self.exchanges and (
            self.exchanges[exchange][1] or any(source == exchange for source, *_ in self.bindings)
        )

    def _delete_exchange(self, name: str, lapses: bool) -> None:
        self.exchanges.pop(name, None)
        self.bindings -= {each for each in self.bindings if each[0] == name}
        self._lose({each for each in self.bindings if each[1:3] == (False, name)}, lapses)

    def _lose(self, bindings: set[Binding], lapses: bool) -> None:
        self.bindings -= bindings
        if lapses:
            self._lapse({source for source, *_ in bindings})

    def _lapse(self, sources: set[str]) -> None:
        for name in sorted(sources):
            if self.exchanges.get(name, (False, False))[0] and not self._in_use(name):
                self._delete_exchange(name, True)


def _decoded(step: Configure) -> Any:
    return msgspec.msgpack.decode(step.arguments)[:5]


def carried_out(step: Configure) -> list[Configure]:
    """The steps within one, with the numbers of their queues: the last ones before its own."""
    arguments = msgspec.msgpack.decode(step.arguments)
    parts = msgspec.msgpack.decode(arguments[1]) if step.operation == "access.audited" else arguments
    number = step.config_id - sum(operation == "queue.declare" for operation, _, _ in parts)
    steps = []
    for operation, name, packed in parts:
        steps.append(Configure(number, operation, name, packed))
        number += operation == "queue.declare"
    return steps
