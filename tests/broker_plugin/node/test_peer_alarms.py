"""AlarmsInForce of other nodes: whom a node tells of its own, and what it knows of those of its peers."""

from __future__ import annotations

from typing import Any

import pytest

from broker_plugin.amqp.alarms import LOW_ON_DISK, LOW_ON_MEMORY
from broker_plugin.node.links import Links, PeerAddress
from broker_plugin.node.peer_alarms import PeerAlarms
from ha.messages.alarms import ALARMS_FEATURE, NO_ALARMS, AlarmsInForce
from ha.messages.stream import Commit
from ha.messages.wire import encode
from tests.broker_plugin.node import test_links
from tests.broker_plugin.node.test_links import TAKEN, Dialling, come, greet, nothing, replace
from tests.support.far_end import CREDENTIALS
from tests.support.guards import StrictGuard

KNOWS = frozenset({ALARMS_FEATURE, "another"})
MEMORY, DISK = AlarmsInForce(True, False), AlarmsInForce(False, True)


class Told(PeerAlarms):
    """``sent``: what peers have been told."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, AlarmsInForce]] = []
        super().__init__(lambda *told: self.sent.append(told))


@pytest.fixture
def node() -> Told:
    return Told()


# -- what this node tells


def test_a_peer_is_told_when_it_is_linked_and_whenever_something_changes(node: Told) -> None:
    node.look([LOW_ON_DISK])
    assert node.sent == [], "nobody is there"
    node.linked("b", KNOWS)
    node.linked("c", KNOWS)
    assert node.sent == [("b", DISK), ("c", DISK)]
    node.sent.clear()
    for reasons in ([LOW_ON_DISK], [LOW_ON_DISK, LOW_ON_MEMORY], [LOW_ON_MEMORY, LOW_ON_DISK], [], []):
        node.look(reasons)
    both = AlarmsInForce(True, True)
    assert node.sent == [("b", both), ("c", both), ("b", NO_ALARMS), ("c", NO_ALARMS)]


def test_a_peer_that_links_is_told_that_there_is_none(node: Told) -> None:
    """Or it would not know."""
    node.linked("b", KNOWS)
    assert node.sent == [("b", NO_ALARMS)]


@pytest.mark.parametrize("features", [frozenset(), frozenset({"calls", "users"})])
def test_a_peer_of_an_older_version_is_told_nothing(features: frozenset[str], node: Told) -> None:
    """It would end the connection: for it that is no message."""
    node.linked("b", features)
    node.look([LOW_ON_MEMORY])
    assert node.sent == []


def test_a_peer_may_come_back_as_one_of_an_older_version(node: Told) -> None:
    node.linked("b", KNOWS)
    node.unlinked("b")
    node.look([LOW_ON_MEMORY])
    node.linked("b", frozenset())
    node.look([])
    assert node.sent == [("b", NO_ALARMS)]
    node.unlinked("b")
    node.unlinked("b")


# -- what peers tell


def test_what_a_peer_said_last_is_known(node: Told) -> None:
    assert node.of("b") is None
    node.linked("b", KNOWS)
    node.came("b", "first")
    assert node.of("b") is None, "it has said nothing yet"
    for alarms, reasons in (
        (NO_ALARMS, []),
        (MEMORY, ["low on memory"]),
        (AlarmsInForce(True, True), ["low on memory", "low on disk"]),
        (DISK, ["low on disk"]),
    ):
        node.told("b", "first", alarms)
        assert node.of("b") == reasons and node.of("c") is None


def test_a_connection_that_ends_takes_with_it_what_was_told_on_it(node: Told) -> None:
    node.linked("b", KNOWS)
    node.came("b", "first")
    node.told("b", "first", MEMORY)
    node.left("b", "first")
    assert node.of("b") is None
    node.came("b", "second")
    assert node.of("b") is None, "and it is not what is known of the next"
    node.told("b", "second", NO_ALARMS)
    assert node.of("b") == []


def test_the_newest_connection_of_a_peer_counts(node: Told) -> None:
    """The former one may end much later, and what was under way on it come later still."""
    node.linked("b", KNOWS)
    node.came("b", "first")
    node.told("b", "first", MEMORY)
    node.came("b", "second")
    assert node.of("b") is None
    node.told("b", "first", MEMORY)
    assert node.of("b") is None
    node.told("b", "second", DISK)
    node.told("b", "first", MEMORY)
    node.left("b", "first")
    assert node.of("b") == ["low on disk"]


def test_of_a_peer_that_is_not_linked_nothing_is_known(node: Told) -> None:
    """As nothing else is: for this node it does not run. Its own connection may stand, and it says nothing twice."""
    node.came("b", "first")
    node.told("b", "first", MEMORY)
    assert node.of("b") is None
    node.linked("b", KNOWS)
    assert node.of("b") == ["low on memory"]
    node.unlinked("b")
    assert node.of("b") is None
    node.linked("b", frozenset())
    assert node.of("b") == ["low on memory"]


# -- over links


@pytest.mark.parametrize("features", [[ALARMS_FEATURE], []])
async def test_a_link_carries_them_to_who_names_the_feature(
    features: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(test_links, "OURS", replace(test_links.OURS, features=[ALARMS_FEATURE]))
    monkeypatch.setattr(test_links, "THEIRS", replace(test_links.THEIRS, features=features))
    ours = Dialling(monkeypatch, TAKEN)
    last = await ours.until_the_last()
    far = greet(last)
    ours.links.alarms.look([LOW_ON_DISK])
    ours.links.send("b", Commit(1, 1, 2))
    far.hear(last)
    told = [encode(NO_ALARMS), encode(DISK)] if features else []
    assert far.got == [encode(test_links.OURS), *told, encode(Commit(1, 1, 2))]
    last.protocol.data_received(far.say(MEMORY))
    assert not last.aborted and ours.links.alarms.of("b") is None, "the peer tells on its own connection"
    await ours.links.stop()


async def test_what_comes_over_a_link_is_known_while_that_stands() -> None:
    got: list[Any] = []
    links = Links(
        StrictGuard(), test_links.OURS, CREDENTIALS, [PeerAddress("b", "h", 7)], nothing, lambda *said: got.append(said)
    )
    links.alarms.linked("b", KNOWS)
    (first, far), (second, newer) = come(links), come(links)
    first.protocol.data_received(far.say(test_links.THEIRS, MEMORY, Commit(1, 1, 1)))
    assert links.alarms.of("b") == ["low on memory"] and got == [("b", Commit(1, 1, 1))], "the core is told of none"
    second.protocol.data_received(newer.say(test_links.THEIRS))
    assert links.alarms.of("b") is None
    second.protocol.data_received(newer.say(DISK))
    first.protocol.connection_lost(None)
    assert links.alarms.of("b") == ["low on disk"]
    second.protocol.connection_lost(None)
    assert links.alarms.of("b") is None


async def test_a_link_that_goes_down_forgets(monkeypatch: pytest.MonkeyPatch) -> None:
    ours = Dialling(monkeypatch, TAKEN)
    last = await ours.until_the_last()
    greet(last)
    came, far = come(ours.links)
    came.protocol.data_received(far.say(test_links.THEIRS, MEMORY))
    assert ours.links.alarms.of("b") == ["low on memory"]
    ours.network.script.append(TAKEN)
    last.protocol.connection_lost(None)
    assert ours.links.alarms.of("b") is None
    await ours.links.stop()
