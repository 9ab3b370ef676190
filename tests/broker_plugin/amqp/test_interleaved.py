"""Channels of one connection interleave their frames as they like (AMQP 0-9-1, 4.2.6): each keeps its own content."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pamqp import body, frame, header
from pamqp.commands import Basic, Channel, Confirm, Queue

from tests.broker_plugin.amqp.peer import Peer
from tests.support.examples import examples

CHANNELS = (1, 2, 3)
BODIES = st.sampled_from([b"", b"a", b"b", b"one1", b"two2", b"\xce" * 4, b"x" * 600])


def frames_of(channel: int, data: bytes, size: int = 4088) -> list[bytes]:
    """A publish to "q" as its frames; bodies are cut after ``size`` bytes."""
    parts = [Basic.Publish(0, "", "q"), header.ContentHeader(0, len(data), Basic.Properties(delivery_mode=2))]
    parts += [body.ContentBody(data[at : at + size]) for at in range(0, len(data), size)]
    return [frame.marshal(part, channel) for part in parts]


def peer_with_queue() -> Peer:
    peer = Peer().open()
    for number in CHANNELS[1:]:
        peer.send(number, Channel.Open())
    peer.send(1, Queue.Declare(queue="q", durable=True))
    for number in CHANNELS:
        peer.send(number, Confirm.Select())
    peer.settle()
    peer.frames()
    return peer


def test_another_channel_s_content_behind_a_publish() -> None:
    """``another_channel_s_content_behind_a_publish``: what followed the same publish before came on another channel."""
    peer = peer_with_queue()
    peer.connection.receive(b"".join(frames_of(1, b"warm")))
    one, two = frames_of(1, b"one1"), frames_of(2, b"two2")
    peer.connection.receive(one[0] + two[0] + one[1] + one[2] + two[1] + two[2])
    peer.settle()
    assert sorted(peer.frames()) == [
        "1 Basic.Ack delivery_tag=2 multiple=True",
        "2 Basic.Ack delivery_tag=1 multiple=False",
    ]
    assert peer.harness.client().drain("q") == [b"warm", b"one1", b"two2"]


ONE, TWO, EMPTY = frames_of(1, b"one1"), frames_of(2, b"two2"), frames_of(1, b"")
ORDERS = {
    "a content that was remembered of the other channel": (b"two2", TWO[:1] + ONE[:1] + TWO[1:] + ONE[1:]),
    "the header of a message without a body": (b"", EMPTY[:1] + TWO[:1] + EMPTY[1:] + TWO[1:]),
    "a body of the same length": (b"one1", ONE[:2] + TWO[:2] + ONE[2:] + TWO[2:]),
}


@pytest.mark.parametrize("what", ORDERS)
def test_no_frame_of_another_channel_stands_for_what_must_come(what: str) -> None:
    """It comes where the own one would, behind the same publish, and has to be told by its channel."""
    first, stream = ORDERS[what]
    peer = peer_with_queue()
    for number in (1, 2):
        peer.connection.receive(b"".join(frames_of(number, b"warm")))
    peer.connection.receive(b"".join(stream))
    peer.settle()
    assert not [each for each in peer.frames() if "Close" in each]
    found = peer.harness.client().drain("q")
    assert found == [b"warm"] * 2 + [first, *({b"one1", b"two2"} - {first} if first else [b"two2"])]


def test_a_body_without_its_frame_end_is_none_behind_a_publish_that_is_known_either() -> None:
    peer = peer_with_queue()
    whole = b"".join(frames_of(1, b"warm"))
    peer.connection.receive(whole)
    peer.connection.receive(whole[:-1] + b"\0")
    peer.settle()
    assert any("Connection.Close" in each and "501" in each for each in peer.frames())
    assert peer.harness.client().drain("q") == [b"warm"]


@examples(150)
@given(st.data())
def test_any_interleaving_gives_each_message_its_own_body(data: st.DataObject) -> None:
    """Every message arrives once, with its own body, and those of one channel in their order. Who sent one without a
    body cannot be seen of it."""
    published: dict[int, list[bytes]] = {
        number: [each and b"%d" % number + each for each in data.draw(st.lists(BODIES, max_size=4))]
        for number in CHANNELS
    }
    waiting = {
        number: [part for each in bodies for part in frames_of(number, each, data.draw(st.sampled_from([2, 4088])))]
        for number, bodies in published.items()
    }
    stream: list[bytes] = []
    while left := [number for number in CHANNELS if waiting[number]]:
        stream.append(waiting[data.draw(st.sampled_from(left))].pop(0))
    edges = [0, *sorted(data.draw(st.sets(st.integers(0, len(stream)), max_size=6))), len(stream)]
    peer = peer_with_queue()
    for first, last in pairwise(edges):
        peer.connection.receive(b"".join(stream[first:last]))
    peer.settle()
    assert not [each for each in peer.frames() if "Close" in each]
    found = peer.harness.client().drain("q")
    assert found.count(b"") == sum(each.count(b"") for each in published.values())
    for number, bodies in published.items():
        assert [each for each in found if each[:1] == b"%d" % number] == [each for each in bodies if each]
