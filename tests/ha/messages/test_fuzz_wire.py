"""Messages between nodes that come at the wrong time, from an earlier life, bent, or made up.

They are given to real cores of a whole cluster under load, in the name of its own nodes. No node fails, nothing that
was acknowledged is lost, nodes agree, and when it is over every node becomes ready. What a node could only say by lying
(the right attachment, a position that can be) is left out: nodes trust each other.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from ha.messages.alarms import AlarmsInForce
from ha.messages.attaching import Join
from ha.messages.greeting import Hello
from ha.messages.stream import Ack, Entries
from ha.messages.wire import Peer, decode, encode
from tests.support.examples import examples
from tests.support.memory_cluster import MemoryNode
from tests.support.messages import MESSAGES
from tests.support.steps import begin, declared, survivors_agree
from txobserver.events import TxDecision, TxOpen
from txobserver.frames import encode_frame

pytestmark = pytest.mark.fuzz

EVERY = st.sampled_from(MESSAGES)


def test_one_of_each_kind() -> None:
    assert {type(each) for each in MESSAGES} == {Hello, *Peer.__args__}  # type: ignore[attr-defined]


@examples(300)
@given(
    st.binary(max_size=80)
    | st.builds(lambda tag, rest: b"\x95" + bytes((tag,)) + rest, st.integers(0, 30), st.binary())
)
def test_any_bytes(data: bytes) -> None:
    """A message, or ValueError."""
    try:
        message = decode(data)
    except ValueError:
        return
    assert decode(encode(message)) == message


@examples(300)
@given(EVERY | st.just(AlarmsInForce(True, False)), st.data())
def test_bent_messages(message: Any, data: st.DataObject) -> None:
    """A flipped bit, a piece lost, a piece too many: another message, or ValueError."""
    whole = encode(message)
    at = data.draw(st.integers(0, len(whole) - 1))
    how = data.draw(st.sampled_from(["flip", "cut", "insert", "append"]))
    if how == "flip":
        bent = whole[:at] + bytes((whole[at] ^ 1 << data.draw(st.integers(0, 7)),)) + whole[at + 1 :]
    elif how == "cut":
        bent = whole[:at]
    else:
        more = data.draw(st.binary(min_size=1, max_size=9))
        bent = whole[:at] + more + whole[at:] if how == "insert" else whole + more
    try:
        decode(bent)
    except ValueError:
        return
    assert how in ("flip", "insert"), "what is cut or goes on is no message"


class WireMachine(RuleBasedStateMachine):
    """A cluster of three at work; a fuzzer puts messages on its wires that do not belong there."""

    def __init__(self) -> None:
        super().__init__()
        self.cluster = declared("q", "r", checkpoint_every=0.5)
        self.count = 0

    def node(self, number: int) -> MemoryNode:
        return sorted(self.cluster.nodes.items())[number % len(self.cluster.nodes)][1]

    @rule(
        message=EVERY,
        source=st.none() | st.integers(0, 2),
        to=st.integers(0, 2),
        generation=st.sampled_from([-1, -1, 0, 0, 1, 5]),
        session=st.sampled_from([0, 800, 801]),
        times=st.integers(1, 2),
    )
    def strange_message(
        self, message: Any, source: int | None, to: int, generation: int, session: int, times: int
    ) -> None:
        """Of any kind, in the name of a node (None: the primary), of about this generation and of no known attachment.

        It changes nothing. One of a lower generation names the right attachment, and changes nothing either.
        """
        node = self.node(to)
        sender = self.primary_name() if source is None else self.node(source).name
        if sender == node.name or isinstance(message, Hello):
            return  # a second greeting is refused when it is decoded
        strange: Any = decode(encode(message))
        strange.generation = max(0, node.core.generation + generation)
        if hasattr(strange, "session"):
            strange.session = self.attachment(node, sender) if generation < 0 else session
        before = self.shown(node)
        for _ in range(times):
            node.report(lambda: node.core.on_message(sender, strange))
        may_change = isinstance(strange, Join) and strange.generation >= node.core.generation
        assert may_change or self.shown(node) == before

    def primary_name(self) -> str:
        """The primary, or the first node while there is none."""
        active = [name for name, node in sorted(self.cluster.nodes.items()) if node.state == "active"]
        return active[0] if active else self.node(0).name

    @staticmethod
    def attachment(node: MemoryNode, peer: str) -> int:
        """The number of the attachment between these two."""
        sessions = node.core.leading.backups.sessions if node.core.leading else {}
        if peer in sessions:
            return sessions[peer].number
        return node.core.following.backup.session if node.core.following else 0

    @staticmethod
    def shown(node: MemoryNode) -> list[Any]:
        """What of a node a message could change."""
        core, backup = node.core, node.core.following and node.core.following.backup
        sessions = core.leading.backups.sessions if core.leading else {}
        numbers = [(name, each.number, each.acknowledged) for name, each in sorted(sessions.items())]
        mine = [core.state, core.generation, core.replica.tail, core.replica.applied, list(node.host.closed)]
        end = backup and (backup.primary, backup.attached, backup.session, backup._commit)
        return [*mine, core.replica.resyncing, numbers, end]

    @rule(to=st.integers(0, 2), jump=st.integers(1, 1 << 40), behind=st.booleans())
    def jump(self, to: int, jump: int, behind: bool) -> None:
        """Entries that do not follow, of the right attachment."""
        node = self.node(to)
        backup = node.core.following and node.core.following.backup
        if backup is not None and backup.attached:
            tail = node.core.replica.tail
            first = max(1, tail.sequence - jump) if behind else tail.sequence + 1 + jump
            frame = encode_frame(tail.generation, first, [TxOpen(7), TxDecision(7, False)], 0)
            entries = Entries(node.core.generation, backup.session, 0, frame.data)
            node.report(lambda: node.core.on_message(backup.primary, entries))

    @rule(to=st.integers(0, 2), jump=st.integers(1, 1 << 40))
    def acknowledge_too_much(self, to: int, jump: int) -> None:
        """More than was sent, of the right attachment."""
        for primary in self.cluster.nodes.values():
            leading, name = primary.core.leading, self.node(to).name
            session = leading.backups.sessions.get(name) if leading else None
            if session is not None and session.resync is None:
                ack = Ack(primary.core.generation, session.number, session.sent + jump)
                primary.report(lambda p=primary, n=name, a=ack: p.core.on_message(n, a))  # type: ignore[misc]

    @rule(bit=st.integers(0, 1 << 16), to=st.integers(0, 2))
    def bent_frame(self, bit: int, to: int) -> None:
        """The next frame of the stream, with a bit flipped."""
        node = self.node(to)
        backup = node.core.following and node.core.following.backup
        if backup is not None and backup.attached:
            tail = node.core.replica.tail
            data = bytearray(
                encode_frame(tail.generation, tail.sequence + 1, [TxOpen(9), TxDecision(9, False)], 0).data
            )
            bit %= len(data) * 8
            data[bit // 8] ^= 1 << bit % 8
            entries = Entries(node.core.generation, backup.session, 0, bytes(data))
            node.report(lambda: node.core.on_message(backup.primary, entries))

    @rule(queues=st.sampled_from([("q",), ("q", "r")]))
    def transaction(self, queues: tuple[str, ...]) -> None:
        """Clients go on: one message to each queue, together."""
        for node in self.cluster.nodes.values():
            if node.host.ledger is not None:
                self.count += 1
                observer = begin(node, {queue: [f"t{self.count}"] for queue in queues})
                label = f"commit {self.count} {','.join(queues)}"
                node.report(lambda n=node, o=observer, a=label: o.commit(n.host.note(a)))  # type: ignore[misc]
                return

    @rule(turns=st.integers(1, 40))
    def time_passes(self, turns: int) -> None:
        for _ in range(turns):
            self.cluster.turn()

    @invariant()
    def everyone_lives(self) -> None:
        assert all(node.stopped is None for node in self.cluster.nodes.values())
        self.cluster.check_agreement()

    def in_step(self) -> bool:
        """Nothing is on its way, and every node has applied all that there is."""
        replicas = [node.core.replica for node in self.cluster.nodes.values()]
        offsets = {replica.applied for replica in replicas} | {replica.tail for replica in replicas}
        return self.cluster.all_ready() and len(offsets) == 1

    def teardown(self) -> None:
        """Every node becomes ready and holds the same, if need be after a timeout; what was answered is there,
        whole."""
        self.cluster.run(self.in_step, seconds=60)
        survivors_agree(self.cluster)
        host = self.cluster.primary.host
        for node in self.cluster.nodes.values():
            for label, error in node.host.answers:
                if label.startswith("commit "):
                    _, number, queues = label.split(" ")
                    found = [f"t{number}" in host.bodies(queue) for queue in queues.split(",")]
                    assert all(found) if error is None else not any(found), (label, error)


WireMachine.TestCase.settings = examples(50, stateful_step_count=30)
TestClusterWithAStranger = WireMachine.TestCase
