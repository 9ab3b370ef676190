"""Each kind of effect and message that cannot be is found before it is carried out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, get_args

import pytest
from msgspec.structs import replace

from ha.effect_invariants import _EFFECTS, _MESSAGES
from ha.effects import (
    Acknowledge,
    CompareAndSet,
    Effect,
    LogLine,
    Persist,
    ReadLog,
    ReadQueue,
    ResetLog,
    Send,
    Stop,
    Truncate,
    WriteCheckpoint,
)
from ha.log_events import StoreFailed
from ha.messages import election
from ha.messages.attaching import AttachmentRefused, Follow, Join, Leave
from ha.messages.calls import CallStanding
from ha.messages.copying import ForwardTx, Missing, QueueChange, QueueSnapshot, ResyncBegin, SnapshotEnd, SnapshotQueues
from ha.messages.member_asks import MemberTold
from ha.messages.steps import StepTold
from ha.messages.stream import Ack, Cancel, Commit, Entries
from ha.messages.wire import Peer
from tests.support.broken_states import record_of
from tests.support.memory_host import text
from tests.support.steps import declared
from txobserver.events import Publish, TxDecision
from txobserver.frames import encode_frame
from txobserver.ids import Member, Position, generated_id
from txobserver.invariants import InvariantBroken
from txobserver.outcomes import OutcomesMeta
from txobserver.ports.store import Above, Checkpoint, Meta, QueueSummary, TxRun
from txobserver.xid import Xid

pytestmark = pytest.mark.plain

Y = Xid(1, b"another", b"")


def frame_at(core: Any, ahead: int = 1, generation: int = 1) -> Any:
    first = core._checks._effects.persisted + ahead
    return encode_frame(generation, first, [Publish(generated_id(generation, 9), (1,), text("x"))], 5)


EFFECTS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "a frame behind a hole": ("P7", lambda core: Persist(frame_at(core, 2))),
    "a frame of a later generation": ("P10", lambda core: Persist(frame_at(core, 1, 9))),
    "a frame behind the stream": ("P7", lambda core: Persist(frame_at(core))),
    "an acknowledgement of more": ("P11", lambda core: Truncate(1, Acknowledge("b", 1, 1, 2))),
    "an acknowledgement of no attachment": ("P10", lambda core: Truncate(1, Acknowledge("b", 1, 0, 1))),
    "a cut without a callback": ("P11", lambda core: Truncate(1)),
    "a cut behind the end": ("P6", lambda core: Truncate(1 << 40, Acknowledge("b", 1, 1, 1 << 40))),
    "a log begun anew in a whole store": ("P9", lambda core: ResetLog(5, ())),
    "a checkpoint of what is not applied": ("P4", lambda core: WriteCheckpoint(at(Position(1, 1 << 40)))),
    "a checkpoint of a later generation": ("P10", lambda core: WriteCheckpoint(at(Position(9, 1)))),
    "an acknowledgement without a write": ("P11", lambda core: Send("b", Ack(1, 1, 1))),
    "a message to itself": ("P10", lambda core: Send(core.member.node, AttachmentRefused(1, 0, "no"))),
    "a message of a later generation": ("P10", lambda core: Send("b", AttachmentRefused(99, 0, "no"))),
    "an unknown message": ("P10", lambda core: Send("b", WithGeneration())),
    "entries that are not on this disk": ("P11", lambda core: Send("b", Entries(1, 1, 0, frame_at(core).data))),
    "a commit point that is not reached": ("P11", lambda core: Send("b", Commit(1, 1, 1 << 40))),
    "a log kept that is not here": ("P7", lambda core: Send("b", Follow(1, 1, 1 << 40, 0))),
    "a refusal without a reason": ("P12", lambda core: Send("b", AttachmentRefused(1, 1, ""))),
    "a vote without a reason": ("P12", lambda core: Send("b", Cancel(1, 1, 1, ""))),
    "a farewell without a reason": ("P12", lambda core: Send("b", Leave(1, 1, ""))),
    "a message asked for twice": ("P3", lambda core: Send("b", Missing(1, 1, 1, [5, 5]))),
    "a member of another node joins": (
        "P9",
        lambda core: Send("b", Join(1, 1, Member("z", "1"), [], Position(1, 5), 5, False)),
    ),
    "a log applied beyond its end": (
        "P6",
        lambda core: Send("b", Join(1, 1, core.member, [], Position(1, 5), 6, False)),
    ),
    "an answer of another": ("P2", lambda core: Send("b", election.ProbeReply(1, 1, Member("z", "1"), Position(0, 0)))),
    "more log than there is": (
        "P2",
        lambda core: Send("b", election.ProbeReply(1, 1, core.member, Position(9, 9))),
    ),
    "a copy of no generation": ("P10", lambda core: Send("b", ResyncBegin(1, 1, [], Position(1, 1)))),
    "a page out of order": ("P8", lambda core: Send("b", QueueSnapshot(1, 1, 1, -1, 9, [(5, 1), (4, 2)]))),
    "a page that ends too late": ("P7", lambda core: Send("b", QueueSnapshot(1, 1, 1, -1, 4, [(5, 1)]))),
    "a message copied twice": (
        "P3",
        lambda core: Send("b", QueueChange(1, 1, 1, [(5, 1, text("x")), (5, 2, text("x"))], [])),
    ),
    "a transaction without events": ("P1", lambda core: Send("b", ForwardTx(1, 1, 7, []))),
    "a queue compared twice": ("P7", lambda core: Send("b", SnapshotQueues(1, 1, [(1, 0, 0, 0), (1, 0, 0, 0)]))),
    "a copy that ends ahead": (
        "P4",
        lambda core: Send(
            "b", SnapshotEnd(1, 1, Position(1, 1 << 40), [Position(1, 1)], 0, (0, 0, 0), [], OutcomesMeta())
        ),
    ),
    "the log read from nothing on": ("P7", lambda core: ReadLog("b", 1, 0, 1)),
    "the log read ahead of the writer": ("P11", lambda core: ReadLog("b", 1, 1 << 40, 1)),
    "a page of no queue": ("P5", lambda core: ReadQueue(1, 1, Above(0, -1, 1, 1))),
    "a version that is left out": (
        "P10",
        lambda core: CompareAndSet(
            record_of(core).version, replace(record_of(core), version=record_of(core).version + 2)
        ),
    ),
    "another is proposed": (
        "P10",
        lambda core: CompareAndSet(
            record_of(core).version,
            replace(record_of(core), version=record_of(core).version + 1, primary=Member("b", "b1")),
        ),
    ),
    "a line of nothing": ("P12", lambda core: LogLine(StoreFailed(""))),
    "a handover refused without a reason": ("P12", lambda core: Send("b", election.HandoverRefused(1, ""))),
    "outdated by nothing": ("P10", lambda core: Send("b", election.Outdated(0))),
    "an end without a reason": ("P12", lambda core: Stop("")),
}


class WithGeneration:
    """What no node knows."""

    generation = 1


def at(applied: Position) -> Checkpoint:
    return Checkpoint(Meta(applied, [Position(1, 1)]), {}, [], [], [])


@pytest.mark.parametrize("kind", EFFECTS)
def test_a_broken_effect_is_found(kind: str) -> None:
    promise, make = EFFECTS[kind]
    core = declared("q").primary.core
    core.take_effects()
    core.emit(make(core))
    with pytest.raises(InvariantBroken) as found:
        core.take_effects()
    assert found.value.promise == promise


ANSWERS = [CallStanding(1, b"id", 1, [], []), StepTold(1, 1, None), MemberTold(1, 1, "no")]
"""A seed of members found the last (149)"""


@pytest.mark.parametrize("answer", ANSWERS, ids=lambda answer: type(answer).__name__)
def test_answer_in_the_turn_of_a_step_down(answer: Any) -> None:
    """The primary gives it, and learns in the same turn that its lease is over: it was primary when it spoke."""
    core = declared("q").primary.core
    core.take_effects()
    core.emit(Send("b", answer))
    core.look_at_clock(core.now + 1000.0, 0)
    assert core.leading is None and Send("b", answer) in core.take_effects()
    core.emit(Send("b", answer))
    with pytest.raises(InvariantBroken, match="P10"):
        core.take_effects()


def test_every_message_and_every_effect_is_checked() -> None:
    """One that is forgotten would end the node that sends it, where invariants are checked."""
    assert {*_MESSAGES} == {*get_args(Peer)} - {Ack}
    assert {*_EFFECTS} == {*get_args(Effect)}


CHECKPOINTS: dict[str, tuple[str, Checkpoint]] = {
    "a queue that is not there": ("P4", at(Position(1, 2))._replace(changes={5: {}})),
    "an event that is not applied": (
        "P6",
        at(Position(1, 2))._replace(tx_events=[TxRun(1, [(3, TxDecision(1, True))])]),
    ),
    "an event of another transaction": (
        "P1",
        at(Position(1, 2))._replace(tx_events=[TxRun(1, [(2, TxDecision(2, True))])]),
    ),
    "an end twice": ("P7", at(Position(1, 2))._replace(tx_ended=[1, 1])),
    "less than no message": (
        "P3",
        at(Position(1, 2))._replace(meta=Meta(Position(1, 2), [Position(1, 1)], summaries={1: QueueSummary(-1)})),
    ),
    "a generation that has not begun": (
        "P6",
        at(Position(1, 2))._replace(meta=Meta(Position(1, 2), [Position(1, 3)])),
    ),
    "other queues than declared": (
        "P7",
        at(Position(1, 2))._replace(meta=Meta(Position(1, 2), [Position(1, 1)], summaries={1: QueueSummary()})),
    ),
}


@pytest.mark.parametrize("kind", CHECKPOINTS)
def test_a_broken_checkpoint_is_found(kind: str) -> None:
    promise, checkpoint = CHECKPOINTS[kind]
    core = declared("q").primary.core
    core.take_effects()
    with pytest.raises(InvariantBroken) as found:
        for _ in range(64):
            core.emit(WriteCheckpoint(checkpoint))
            core.take_effects()
    assert found.value.promise == promise
