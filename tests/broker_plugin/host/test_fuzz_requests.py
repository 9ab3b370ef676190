"""What no proper host broker says: any bytes in any pieces, messages bent in their values, requests out of order.

A broker that says what none may is disconnected with a sentence. Nothing else fails, and next to nothing is kept of one
that has not attached.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_plugin.host.from_broker import Attach
from broker_plugin.host.node_end import BrokerDoor, BrokerProtocol
from broker_plugin.host.requests import Activation
from broker_plugin.host.wire import HOST_VERSION, LENGTH, MAX_ATTACH, decode_from_broker, framed
from tests.broker_plugin.host.across import far_cluster
from tests.broker_plugin.host.test_wire import FROM_BROKER
from tests.support.examples import examples
from tests.support.guards import strict_guard

pytestmark = pytest.mark.fuzz

HELLO = Attach(HOST_VERSION, "tiny", "127.0.0.1", 5000)
CUTS = st.lists(st.integers(0, 1 << 16), max_size=8)
NUMBERS = st.sampled_from([-1, 0, 1, 2, 3, 9, 255, 2**31, 2**32, 2**63 - 1, 2**64 - 1])


class Transport:
    """Says whether the connection was ended."""

    def __init__(self) -> None:
        self.aborted = False

    def get_write_buffer_size(self) -> int:
        return 0

    def write(self, data: bytes) -> None:
        """Nobody reads it."""

    def abort(self) -> None:
        self.aborted = True


class Connected:
    """A process that has connected to a node's door. ``gone``: why the node ends."""

    def __init__(self, attached: bool) -> None:
        self.gone: list[str] = []
        guard = strict_guard()
        guard.call_soon = lambda *call: None  # type: ignore[method-assign,assignment]
        self.door = BrokerDoor(guard, Path("nowhere"), "c", "n", self.gone.append)
        self.protocol = BrokerProtocol(self.door)
        self.transport = Transport()
        self.protocol.connection_made(self.transport)  # type: ignore[arg-type]
        if attached:
            self.protocol.data_received(framed(HELLO))
            assert self.door.attached.is_set()

    def receive(self, data: bytes, cuts: list[int]) -> bool:
        """In pieces, until it is disconnected; returns whether it was."""
        edges = [0, *sorted(each % (len(data) + 1) for each in cuts), len(data)]
        for a, b in pairwise(edges):
            if not self.transport.aborted:
                self.protocol.data_received(data[a:b])
                if not self.door.attached.is_set() and not self.transport.aborted:
                    assert len(self.protocol._buffer) <= MAX_ATTACH + LENGTH.size
        return self.transport.aborted


def with_length(data: bytes) -> bytes:
    """As a message is sent."""
    return LENGTH.pack(len(data)) + data


def bent(message: Any, places: list[tuple[int, Any]], numbers: bool = False) -> bytes:
    """The message's encoding with some of its values changed, or only numbers behind its kind."""
    tree = msgspec.msgpack.decode(framed(message)[LENGTH.size :])
    leaves: list[tuple[list[Any], int]] = []

    def walk(branch: Any) -> None:
        for at, each in enumerate(branch if isinstance(branch, list) else ()):
            if not numbers or (type(each) is int and (branch is not tree or at)):
                leaves.append((branch, at))
            walk(each)

    walk(tree)
    for place, value in places if leaves else ():
        branch, at = leaves[place % len(leaves)]
        branch[at] = value
    return msgspec.msgpack.encode(tree)


VALUES = NUMBERS | st.binary(max_size=4) | st.text(max_size=4) | st.none() | st.just([]) | st.just([[1, 1]])
LONG = st.builds(lambda length, size: LENGTH.pack(length) + bytes(size), st.integers(500, 1 << 20), st.integers(0, 700))
"""Messages that are announced as long, and do not come whole"""
BENT = st.builds(bent, st.sampled_from(FROM_BROKER), st.lists(st.tuples(st.integers(0, 99), VALUES), max_size=3))

NUMBERED = st.builds(
    lambda message, places: bent(message, places, numbers=True),
    st.sampled_from(FROM_BROKER),
    st.lists(st.tuples(st.integers(0, 99), NUMBERS), max_size=2),
)
"""Proper in all but what they name"""


@examples(60)
@given(st.lists(st.binary(max_size=100) | LONG | BENT.map(with_length), max_size=4), st.booleans(), CUTS)
def test_any_bytes_in_any_pieces(data: list[bytes], attached: bool, cuts: list[int]) -> None:
    one, other = Connected(attached), Connected(attached)
    assert one.receive(b"".join(data), cuts) == other.receive(b"".join(data), [])
    assert not one.gone and one.door.attached.is_set() == other.door.attached.is_set()


@examples(12)
@given(st.lists(NUMBERED | BENT, max_size=12))
def test_requests_of_any_values(messages: list[bytes]) -> None:
    """To the ledger of a cluster with two queues: what is no request is a ValueError and no other error.

    The broker would be disconnected by it. Here it goes on, and so does the cluster.
    """
    cluster = far_cluster("q", "r")
    leading = cluster.fars[cluster.primary.name].remote
    activation = Activation(1, leading.ledger, leading.content, lambda message: None)

    def take() -> None:
        for data in messages:
            try:
                activation.take(decode_from_broker(data))
            except ValueError:
                continue

    cluster.primary.report(take)
    far = cluster.far
    assert far.ledger is not None
    far.ledger.publish([far.number("q")], FROM_BROKER[2].message, far.note("published"))  # type: ignore[union-attr]
    cluster.run(lambda: far.answers.get("published") is not None)
    assert far.answers["published"] == "ok"
