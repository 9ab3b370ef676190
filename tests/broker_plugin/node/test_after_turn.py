"""What a node does after each turn of its core: clients that wait, and clients that fill the backlog."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from broker_plugin.amqp.alarms import LOW_ON_DISK
from broker_plugin.node import clients as clients_module
from broker_plugin.node.clients import EmbeddedClients
from broker_plugin.node.doors import Doors
from broker_plugin.node.main import NodeProcess
from broker_plugin.node.readiness import Readiness
from tests.broker_plugin.node.starting import Reached, started_until_reached

PRIMARY = SimpleNamespace(point=SimpleNamespace(serving=True), congested=False)


class Server:
    """The AMQP server, as much of it as is told to stop reading and to go on."""

    def __init__(self) -> None:
        self.paused = False
        self.said: list[str] = []
        self.alarms = SimpleNamespace(on={})

    def pause(self) -> None:
        self.paused = True
        self.said.append("pause")

    def resume(self) -> None:
        self.paused = False
        self.said.append("resume")


class Door:
    """A client that is not served here, and the generation in which it was last looked at."""

    def __init__(self) -> None:
        self.looks = 0
        self.generation = 0

    def look(self, generation: int) -> None:
        self.looks += 1
        self.generation = generation


def served_by(server: Any) -> EmbeddedClients:
    clients: Any = EmbeddedClients.__new__(EmbeddedClients)
    clients._amqp, clients._take_over = server, None
    return clients  # type: ignore[no-any-return]


class Running:
    """A node whose core is in the state that the test says."""

    def __init__(self) -> None:
        self.node: Any = NodeProcess.__new__(NodeProcess)
        self.node._readiness = Readiness(1, 1)
        self.door, self.server = Door(), Server()
        self.node.clients, self.node.doors = served_by(self.server), Doors.__new__(Doors)
        self.node.metrics = SimpleNamespace(look=lambda: None)
        self.told: list[list[str]] = []
        self.node.links = SimpleNamespace(alarms=SimpleNamespace(look=lambda on: self.told.append(list(on))))
        self.node.doors._doors, self.node.doors._seen = {self.door}, None
        self.turn("joining", 1)

    def turn(self, state: str, generation: int, primary: Any = None, backup: Any = None) -> int:
        """How often clients that wait have been looked at in it."""
        before = self.door.looks
        keeper = SimpleNamespace(record=SimpleNamespace(ready=("a",)))
        leading = primary and SimpleNamespace(primary=primary, keeper=keeper)
        following = backup and SimpleNamespace(backup=backup)
        roles = {"leading": leading, "following": following}
        self.node.core = SimpleNamespace(state=state, generation=generation, record=None, role=None, **roles)
        self.node.doors._parts = SimpleNamespace(core=self.node.core)
        self.node._after_turn()
        return self.door.looks - before


def test_a_client_is_looked_at_again_whenever_another_answer_is_possible() -> None:
    node = Running()
    assert node.turn("joining", 1) == 0
    assert node.turn("joining", 2) == 1 and node.door.generation == 2, "another generation"
    attached = SimpleNamespace(attached=False)
    node.turn("joining", 2, backup=attached)
    attached.attached = True
    assert node.turn("joining", 2, backup=attached) == 1, "there is a primary to be passed on to"
    assert node.turn("joining", 2, backup=attached) == 0
    assert node.turn("catchup", 2, backup=attached) == 1
    assert node.turn("active", 2, primary=PRIMARY) == 1
    assert node.turn("active", 2, primary=PRIMARY) == 0


@pytest.mark.parametrize("ends", ["drains", "closes", "steps down"])
def test_clients_are_read_no_further_while_the_backlog_is_full(ends: str) -> None:
    node = Running()
    primary = SimpleNamespace(point=SimpleNamespace(serving=True), congested=True)
    for _ in range(3):
        node.turn("active", 1, primary=primary)
    assert node.server.said == ["pause"], "once"
    primary.congested, primary.point.serving = ends != "drains", ends != "closes"
    for _ in range(3):
        node.turn("active", 1, primary=None if ends == "steps down" else primary)
    assert node.server.said == ["pause", "resume"]


def test_peers_are_told_of_alarms_after_the_turn() -> None:
    node = Running()
    node.server.alarms.on[LOW_ON_DISK] = None
    node.turn("joining", 1)
    assert node.told == [[], [LOW_ON_DISK]]


async def test_each_turn_is_followed_by_that(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def put_together(*parts: Any) -> None:
        raise Reached

    monkeypatch.setattr(clients_module, "amqp_server", put_together)
    node = await started_until_reached(tmp_path)
    assert node.shell.on_turn == node._after_turn
