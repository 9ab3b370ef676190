"""A cluster's state that imports change, as the stream would."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from broker_plugin.definitions.document import read_document
from broker_plugin.definitions.found import ImportFound
from broker_plugin.definitions.reading import read_import
from broker_plugin.definitions.state import DefinitionsHeld
from txobserver.access import found_users_step
from txobserver.batch import load_step, number_step, numbers_of
from txobserver.configuration import Configured
from txobserver.events import Configure
from txobserver.ids import Position
from txobserver.ports.store import MemoryBase, Meta
from txobserver.state.contents import Contents

FILES = Path(__file__).parents[2] / "fixtures" / "definitions"
"""What RabbitMQ 3.10.8 and 4.0.5 wrote themselves: `rabbitmqctl export_definitions`, and by HTTP"""


class Held:
    """``contents``: those of a node whose cluster keeps users."""

    def __init__(self) -> None:
        self.contents = Contents(MemoryBase(), Meta(applied=Position(1, 1)))
        self.do(found_users_step([], ""))

    def do(self, step: Configure) -> Configured:
        for _ in range(numbers_of(step)):
            self._next(number_step())
        return self._next(step)

    def _next(self, step: Configure) -> Configured:
        return self.contents.configure(msgspec.structs.replace(step, config_id=self.contents.configuration.last_id + 1))

    @property
    def state(self) -> DefinitionsHeld:
        there, access = self.contents.configuration, self.contents.access
        declared = list(there.queues.values()), list(there.exchanges.values()), list(there.bindings)
        return DefinitionsHeld(list(access.users.values()), list(access.rules.values()), *declared)

    def read(self, text: str | bytes, vhost: str | None = None) -> ImportFound:
        return read_import(read_document(text), self.state, vhost)

    def load(self, steps: Sequence[Configure]) -> None:
        done = self.do(load_step(steps))
        assert done.refusal is None, done

    def imported(self, text: str | bytes, vhost: str | None = None) -> ImportFound:
        """All that can be honoured."""
        found = self.read(text, vhost)
        self.load(found.steps)
        return found


def without_numbers(state: DefinitionsHeld) -> tuple[Any, ...]:
    """What two clusters have in common that hold the same."""
    users = {(user.name, user.hash, user.tags) for user in state.users}
    queues = sorted((spec.name, spec.auto_delete, json.dumps(spec.arguments, sort_keys=True)) for spec in state.queues)
    rest = [sorted(map(repr, each)) for each in (state.rules, state.exchanges, state.bindings)]
    return users, queues, rest
