"""Whom a node dials, and whom it lets greet, as the record goes on (``broker_plugin.node.linked_members``)."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from broker_plugin.logs.link_events import PeerNowhere
from broker_plugin.node import linked_members
from broker_plugin.node import links as links_module
from broker_plugin.node.linked_members import LinkedMembers
from broker_plugin.node.links import Links, PeerAddress
from ha.membership.members import ClusterNode, Membership
from ha.membership.record import Record
from ha.messages.greeting import WIRE_VERSION, Hello
from tests.support.far_end import CREDENTIALS
from tests.support.guards import StrictGuard
from txobserver.ids import Member

OF = {name: Hello(WIRE_VERSION, "cluster", name, "127.0.0.1", 1, features=["x"]) for name in "abc"}
A = Member("a", "a1")


class Running:
    """Links of one node, that listen on a port of their own."""

    def __init__(self, name: str) -> None:
        self.told: list[tuple[str, bool]] = []
        self.links = Links(
            StrictGuard(), OF[name], CREDENTIALS, [], lambda peer, up: self.told.append((peer, up is not None)), nothing
        )
        self.port = 0

    async def start(self) -> Running:
        await self.links.start("127.0.0.1", 0)
        assert self.links._server is not None
        self.port = self.links._server.sockets[0].getsockname()[1]
        return self

    def address(self, name: str) -> PeerAddress:
        return PeerAddress(name, "127.0.0.1", self.port)


def nothing(*args: Any) -> None:
    """Whatever it is."""


async def until(condition: Any) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.01)


async def test_peers_come_move_and_go_while_the_links_run() -> None:
    a, b, elsewhere = await Running("a").start(), await Running("b").start(), await Running("b").start()
    a.links.follow([b.address("b")])
    for each in (b, elsewhere):
        each.links.follow([a.address("a")])
    await until(lambda: a.told == [("b", True)] and b.told == [("a", True)] and elsewhere.told == [("a", True)])
    a.links.follow([b.address("b")])
    assert len(a.links._dialers) == 1, "it is so already"
    a.links.follow([elsewhere.address("b")])
    await until(lambda: a.told[-2:] == [("b", False), ("b", True)] and len(a.told) == 3)
    a.links.follow([])
    await until(lambda: a.told[-1] == ("b", False) and ("a", False) in b.told)
    assert not a.links._out and not a.links._dialers
    assert not [each for each in a.links._in if each.peer is not None], "who greeted is let go of"
    await asyncio.sleep(0.2)
    assert a.told[-1] == ("b", False) and b.told[-1] == ("a", False), "and greeted no more"
    for each in (a, b, elsewhere):
        await each.links.stop()


@pytest.mark.parametrize("host", ["10..0.0.4", ".a", "h" * 64, "a\u3002\u3002b", "a\0b"])
async def test_a_host_that_no_resolver_takes_ends_no_node(host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """``host_that_no_resolver_takes``: an address with a slip stands in the record, and each node goes on and says so
    once."""
    said: list[Any] = []
    monkeypatch.setattr(links_module, "tell", lambda logger, level, event: said.append(event))
    monkeypatch.setattr(links_module, "FIRST_DELAY", 0.01)
    a, b = await Running("a").start(), await Running("b").start()
    a.links.follow([b.address("b"), PeerAddress("c", host, 5)])
    b.links.follow([a.address("a")])
    await until(lambda: a.told == [("b", True)] and said)
    await asyncio.sleep(0.1)
    assert said == [PeerNowhere("c", host)] and not any(each.done() for each in a.links._dialers.values())
    for each in (a, b):
        await each.links.stop()


class Followed:
    """Stands for the links; keeps who is to be followed."""

    def __init__(self) -> None:
        self.peers: list[list[tuple[str, str, int]]] = []

    def follow(self, peers: list[PeerAddress]) -> None:
        self.peers.append([(each.name, each.host, each.port) for each in peers])


class Core:
    """Stands for the core: what record it knows."""

    def __init__(self) -> None:
        self.member = A
        self.record: Record | None = None
        self.founding: tuple[ClusterNode, ...] = ()


def test_the_record_counts_for_more_than_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[Any] = []
    monkeypatch.setattr(linked_members, "tell", lambda logger, level, event: said.append(event))
    core, links = Core(), Followed()
    own, peers = PeerAddress("a", "0.0.0.0", 5), [PeerAddress("b", "hb", 6)]
    found = LinkedMembers(core, links, peers, own)  # type: ignore[arg-type]
    assert core.founding == (ClusterNode("a", "0.0.0.0", 5), ClusterNode("b", "hb", 6))
    found.look()
    core.record = Record("c", 1, 1, A, (A,))
    found.look()
    assert links.peers == [], "the file's are followed from the start"
    nodes = (ClusterNode("a", "ha", 5), ClusterNode("c", "hc", 7))
    core.record = msgspec.structs.replace(core.record, membership=Membership(1, nodes))
    found.look()
    found.look()
    assert links.peers == [[("c", "hc", 7)]] and said == []
    moved = (ClusterNode("a", "ha", 9), ClusterNode("c", "hc", 7))
    core.record = msgspec.structs.replace(core.record, membership=Membership(2, moved))
    found.look()
    assert [(each.node, each.listed, each.own) for each in said] == [("a", "ha:9", "0.0.0.0:5")]
    for number, gone in ((3, Membership(3, nodes[1:])), (4, Membership(4, nodes, (A,)))):
        core.record = msgspec.structs.replace(core.record, version=number, membership=gone)
        found.look()
        assert links.peers[-1] == [], "it is no member, or its store was removed"
    core.record = Record("c", 9, 1, A, (A,))
    found.look()
    assert links.peers[-1] == [("b", "hb", 6)], "written anew: it says nothing of members"


def test_where_others_look_for_it_in_vain_is_said_once_and_anew_when_that_changes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By another host or another port than its file lets it listen at."""
    said: list[Any] = []
    monkeypatch.setattr(linked_members, "tell", lambda logger, level, event: said.append(event.listed))
    core, links = Core(), Followed()
    found = LinkedMembers(core, links, [], PeerAddress("a", "ha", 5))  # type: ignore[arg-type]
    places = [("ha", 5, "h"), ("elsewhere", 5, "h"), ("elsewhere", 5, "other"), ("ha", 9, "h"), ("ha", 5, "h")]
    for number, (host, port, of_c) in enumerate(places, 1):
        nodes = (ClusterNode("a", host, port), ClusterNode("c", of_c, 7))
        core.record = Record("c", number, 1, A, (A,), membership=Membership(number, nodes))
        for _ in range(2):
            found.look()
        assert len(links.peers) == number, "once for each change"
    assert said == ["elsewhere:5", "ha:9"]
