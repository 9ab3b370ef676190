"""Class dtx as no proper client sends it: bits flipped, fields made up, verbs in any order; over the real core."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pamqp.commands import Basic, Channel, Queue

from broker_plugin.amqp.protocol.handshake import OPEN
from broker_plugin.embedded.queues.windows import WindowLimits
from tests.broker_plugin.amqp.conversation import HANDSHAKE, finish, one, raw, sound
from tests.broker_plugin.amqp.dtx_client import xid
from tests.broker_plugin.amqp.peer import Peer, publish
from tests.broker_plugin.amqp.protocol.test_dtx_methods import METHODS, VALUES
from tests.broker_plugin.embedded.cluster_harness import ClusterHarness
from tests.support.examples import examples
from txobserver import dtx_wire as dtx

pytestmark = pytest.mark.fuzz

X, Y = xid("x"), xid("y")
SESSION = [
    *(one(Channel.Open(), number) for number in (1, 2)),
    *(one(dtx.Select(), number) for number in (1, 2)),
    one(Queue.Declare(queue="q", durable=True)),
    one(dtx.Start(X)),
    publish("q", b"1"),
    one(dtx.Start(X, join=True), 2),
    one(dtx.End(X, suspend=True)),
    one(dtx.Start(Y)),
    publish("q", b"2"),
    one(dtx.SetTimeout(Y, 9)),
    one(dtx.GetTimeout(Y)),
    one(dtx.End(Y)),
    one(dtx.Start(X, resume=True)),
    one(dtx.End(X)),
    one(dtx.End(X), 2),
    one(dtx.Prepare(X)),
    one(dtx.Recover()),
    one(dtx.Global(1, b"x")),
    one(dtx.Outcome(0, Y)),
    one(dtx.Commit(Y, True)),
    one(dtx.Commit(X), 2),
    one(dtx.Decide(1, b"z", True)),
    one(dtx.ForgetGlobal(1, b"z")),
    one(dtx.Forget(X)),
    one(dtx.Rollback(xid("nobody")), 2),
    one(Basic.Get(queue="q")),
]
LIKELY = METHODS | st.sampled_from([dtx.Start, dtx.End, dtx.Prepare, dtx.Commit, dtx.Rollback]).flatmap(
    lambda kind: st.builds(kind, xid=st.sampled_from([X, Y])) | st.builds(kind, VALUES["XidFields"])
)


def play(pieces: list[bytes]) -> bytes:
    """Everything that the broker answers."""
    peer, output = Peer(ClusterHarness(WindowLimits())), b""
    for piece in [*HANDSHAKE, *pieces]:
        peer.connection.receive(piece)
        if len(piece) % 3:
            peer.settle()
        output += peer.connection.take_output()
        sound(peer, output)
    peer.settle()
    output += peer.connection.take_output()
    sound(peer, output)
    alive = peer.connection.state == OPEN
    finish(peer, in_step=alive)
    return output


def test_the_session_as_it_is() -> None:
    """Everything is answered, but for the last request on channel 2, which asks for a branch that is not there."""
    output = play(SESSION)
    for index, method in dtx.METHODS.items():
        if not method.synchronous and method not in (dtx.TokenOk, dtx.RollbackOk):
            assert index.to_bytes(4, "big") in output, f"no {method.name}"


@examples(60)
@given(st.lists(st.tuples(st.integers(0, len(SESSION) - 1), st.integers(0, 1 << 12)), max_size=6))
def test_flipped_bits(flips: list[tuple[int, int]]) -> None:
    """In what the methods hold, not in what makes them frames."""
    pieces = [bytearray(piece) for piece in SESSION]
    for index, bit in flips:
        size = int.from_bytes(pieces[index][3:7], "big")
        at = bit % (size * 8)
        pieces[index][7 + at // 8] ^= 1 << at % 8
    play([bytes(piece) for piece in pieces])


@examples(60)
@given(st.lists(st.tuples(LIKELY, st.sampled_from([1, 2])), max_size=25))
def test_any_methods_in_any_order(methods: list[tuple[dtx.DtxMethod, int]]) -> None:
    pieces = [piece for method, channel in methods for piece in (one(method, channel), one(Channel.CloseOk(), channel))]
    play([*SESSION[:5], *pieces])


@examples(60)
@given(st.lists(st.tuples(st.sampled_from(sorted(dtx.METHODS)), st.binary(max_size=40)), max_size=6))
def test_any_fields(payloads: list[tuple[int, bytes]]) -> None:
    play([*SESSION[:5], *(raw(1, 1, index.to_bytes(4, "big") + rest) for index, rest in payloads)])
