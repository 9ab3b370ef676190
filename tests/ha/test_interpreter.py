"""The interpreter: each effect is carried out once and in order, and what came of it is told in its own way."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, get_args

import pytest

from ha.effects import (
    Acknowledge,
    CloseLink,
    CompareAndSet,
    Effect,
    KeepCalls,
    LogLine,
    Persist,
    ReadAction,
    ReadLog,
    ReadQueue,
    ReadRecord,
    ResetLog,
    RunAction,
    Send,
    Stop,
    Truncate,
    WriteCheckpoint,
)
from ha.interpreter import _ACTIONS, _CARRY_OUT, Interpreter, Write
from ha.log_events import StateChanged
from ha.membership.record import Record
from ha.messages.stream import Ack, Commit
from txobserver.calls import LocalCalls
from txobserver.events import TxOpen
from txobserver.frames import encode_frame
from txobserver.ports.store import Above, Checkpoint, Meta, Page

pytestmark = pytest.mark.plain  # the core is a double

FRAME = encode_frame(1, 4, [TxOpen(5), TxOpen(6)], 0)
THEN = Acknowledge("a", 1, 7, 5)
RECORD = Record("c", 3, 1, None, ())
PERSIST, TRUNCATE, RESET = Persist(FRAME, THEN), Truncate(5, THEN), ResetLog(6, ())
CHECKPOINT = WriteCheckpoint(Checkpoint(Meta(), {}, [], [], []), THEN)
LOG, QUEUE, SET = ReadLog("b", 7, 1, 99), ReadQueue(1, 1, Above(1, 0, 9, 99)), CompareAndSet(3, RECORD)
RUN, READ, KEEP = RunAction(3, b"", 7, "level", 1, "x", b""), ReadAction(4, "level", 1, "x"), KeepCalls(LocalCalls())
PAGE = Page([], False)
ACK = ("send", "a", Ack(1, 7, 5))


class Notes:
    """Whatever is called, with what; of a call that is handed over, how, and then what it does."""

    def __init__(self, said: list[tuple[Any, ...]]) -> None:
        self._said = said

    def __getattr__(self, name: str) -> Any:
        return lambda *words: self._said.append((name, *words))

    def report(self, call: Any) -> None:
        self._said.append(("report",))
        call()

    def answered(self, call: Any) -> None:
        self._said.append(("answered",))
        call()

    def stored(self, record: Record, call: Any) -> None:
        self._said.append(("stored", record))
        call()


class Turn:
    """An interpreter whose core has these effects; ``said`` is all that it does."""

    def __init__(self, *effects: Effect) -> None:
        self.said: list[tuple[Any, ...]] = []
        notes: Any = Notes(self.said)
        core: Any = SimpleNamespace(take_effects=lambda: list(effects), feed=notes)
        for name in ("on_durable", "on_checkpoint", "on_reset", "on_log_read", "on_queue_read", "on_record"):
            setattr(core, name, getattr(notes, name))
        for name in ("on_stored", "on_conflict", "on_cas_failed"):
            setattr(core, name, getattr(notes, name))
        for name in ("on_action", "on_action_read", "on_calls_kept"):
            setattr(core, name, getattr(notes, name))
        self.interpreter = Interpreter(core, notes, notes, notes)


CARRIED_OUT: list[tuple[Effect, list[tuple[Any, ...]]]] = [
    (PERSIST, [("changes", PERSIST), ("write", PERSIST)]),
    (TRUNCATE, [("changes", TRUNCATE), ("write", TRUNCATE)]),
    (RESET, [("changes", RESET), ("write", RESET)]),
    (CHECKPOINT, [("changes", CHECKPOINT), ("write", CHECKPOINT)]),
    (Send("b", Commit(1, 1, 1)), [("send", "b", Commit(1, 1, 1))]),
    (LOG, [("read_log", LOG)]),
    (QUEUE, [("read_queue", QUEUE)]),
    (ReadRecord(), [("read_record",)]),
    (SET, [("compare_and_set", SET)]),
    (CloseLink("b"), [("close_link", "b")]),
    (LogLine(StateChanged("ready")), [("log", LogLine(StateChanged("ready")))]),
    (Stop("no"), [("stop", "no")]),
    (RUN, [("run", RUN)]),
    (READ, [("read", READ)]),
    (KEEP, [("keep", KEEP)]),
]


def test_effects_are_carried_out_once_in_their_order_and_the_feed_is_told_of_each_write() -> None:
    turn = Turn(*(effect for effect, _ in CARRIED_OUT))
    turn.interpreter.run()
    assert turn.said == [each for _, said in CARRIED_OUT for each in said]


def test_every_kind_of_effect_is_carried_out() -> None:
    kinds = set(get_args(Effect))
    assert {type(effect) for effect, _ in CARRIED_OUT} == kinds == _CARRY_OUT.keys() | _ACTIONS.keys()
    assert set(get_args(Write)) < kinds


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (lambda it: it.written(PERSIST), [ACK, ("report",), ("on_durable", 5)]),
        (lambda it: it.written(Persist(FRAME)), [("report",), ("on_durable", 5)]),
        (lambda it: it.written(TRUNCATE), [ACK]),
        (lambda it: it.written(CHECKPOINT), [ACK, ("report",), ("on_checkpoint",)]),
        (lambda it: it.written(RESET), [("report",), ("on_reset", RESET)]),
        (lambda it: it.log_read(LOG, [FRAME]), [("report",), ("on_log_read", "b", 7, [FRAME])]),
        (lambda it: it.queue_read(QUEUE, PAGE), [("report",), ("on_queue_read", QUEUE, PAGE)]),
        (lambda it: it.record_read(RECORD), [("answered",), ("on_record", RECORD)]),
        (lambda it: it.stored(SET, RECORD), [("stored", RECORD), ("on_stored", SET, RECORD)]),
        (lambda it: it.conflict(SET, RECORD), [("report",), ("on_conflict", SET, RECORD)]),
        (lambda it: it.cas_failed(SET), [("report",), ("on_cas_failed", SET)]),
        (lambda it: it.action_ran(RUN, "no"), [("report",), ("on_action", 3, "no")]),
        (lambda it: it.action_read(READ, b"a"), [("report",), ("on_action_read", 4, b"a", "")]),
        (lambda it: it.calls_kept(KEEP), [("report",), ("on_calls_kept", LocalCalls())]),
    ],
)
def test_what_came_of_an_effect_is_told(answer: Any, said: list[tuple[Any, ...]]) -> None:
    """An acknowledgement leaves when its write has been completed, and of a new log none does (P11).

    What the coordination store answers is told before the clock is looked at: a renewal may be behind it.
    """
    turn = Turn()
    answer(turn.interpreter)
    assert turn.said == said
