"""What a later version of txha writes reaches a backup: it is refused before anything is persisted or acknowledged.

A step of configuration with an unknown operation was persisted and acknowledged, and raised only where it was applied:
at once, and again at each start of the node (``what_a_backup_does_not_know_is_persisted``).
"""

from __future__ import annotations

from typing import Any, get_args

import msgspec
import msgspec.inspect
import pytest

from ha.apply.replica import GapInStream, Replica, UnknownEvents
from ha.effects import LogLine, Persist, Send
from ha.log_events import Detached
from ha.messages.attaching import Follow, Leave
from ha.messages.stream import Ack, Entries
from tests.ha.backup.test_backup import Side
from tests.support.frames_of_later_versions import with_payload, with_version
from txobserver.configuration import (
    OPERATIONS,
    BindingSpec,
    ExchangeSpec,
    UnknownStep,
    binding_step,
    check_step,
    delete_queue_step,
    exchange_step,
    queue_step,
    use_queue_step,
)
from txobserver.events import Configure, Event, Message, Settle, Terms, TxOpen
from txobserver.frames import FORMAT_VERSION, encode_frame
from txobserver.ports.store import MemoryBase

KNOWN = encode_frame(1, 1, [queue_step("q", False, {}), TxOpen(5)], 0)
DECLARED = msgspec.msgpack.encode((False, {}))
LATER: dict[str, Any] = {
    "operation": encode_frame(1, 1, [TxOpen(5), Configure(1, "queue.later", "q", b"")], 0),
    "arguments": encode_frame(1, 1, [Configure(1, "queue.declare", "q", msgspec.msgpack.encode((False, {}, 1)))], 0),
    "kind": with_payload(KNOWN, [[99, 1]]),
    "field": with_payload(KNOWN, [[7, 5, "more"]]),
    "reason": encode_frame(1, 1, [Settle(1, [(1, 1)], 9)], 0),
    "version": with_version(KNOWN, FORMAT_VERSION + 1),
}


def following() -> Side:
    side = Side().asked()

    side.take(Follow(1, 7, 0, 0))
    assert side.backup.attached
    return side


@pytest.mark.parametrize("what", LATER)
def test_what_a_backup_does_not_know_is_persisted(what: str) -> None:

    side = following()
    said = side.take(Entries(1, 7, 0, LATER[what].data))
    assert [type(each) for each in said] == [Send] and isinstance(said[0].message, Leave), "and nothing else"
    assert not [each for each in said if isinstance(each, Persist | Ack)]
    assert "upgrade that node" in said[0].message.reason and side.backup.refusal is not None
    assert side.replica.tail.sequence == 0 and not side.replica.buffers, "nothing of it was taken"
    assert not side.backup.attached
    for session in range(8, 20):
        assert side.tick(after=10.0, session=session) == [], "it would be sent the same again"


def test_an_operator_is_told_which_node_to_upgrade() -> None:
    """By a warning, which the terminal of ``txha cluster`` shows, of the field that ``txha status`` shows too."""
    side = following()
    side.backup.take(Entries(1, 7, 0, LATER["kind"].data), side.now)
    (line,) = [each for each in side.effects if isinstance(each, LogLine)]
    assert line.warning and line.event == Detached("a", side.backup.refusal or "")
    assert "upgrade this node" in line.event.reason


def test_what_a_backup_knows_is_persisted() -> None:

    side = following()
    said = side.take(Entries(1, 7, 0, KNOWN.data))
    assert [type(each) for each in said] == [Persist] and side.backup.refusal is None


@pytest.mark.parametrize("what", [each for each in LATER if each != "version"])
def test_the_log_of_a_later_version_is_refused_where_it_is_read(what: str) -> None:
    base = MemoryBase()
    replica = Replica(base, *base.load())
    with pytest.raises(UnknownEvents, match="what this version of txha does not know"):
        replica.restore(LATER[what])
    assert issubclass(UnknownEvents, GapInStream)


def test_a_replica_knows_the_operations_that_it_is_given() -> None:
    base = MemoryBase()
    older = Replica(base, *base.load(), operations=OPERATIONS - {"queue.declare"})
    with pytest.raises(UnknownEvents, match=r"'queue\.declare'"):
        older.receive(encode_frame(1, 1, [Configure(1, "queue.declare", "q", DECLARED)], 0))
    Replica(base, *base.load()).receive(encode_frame(1, 1, [Configure(1, "queue.declare", "q", DECLARED)], 0))


def test_every_step_that_is_made_here_is_known() -> None:
    binding, exchange = BindingSpec("x", "q", True, "k", {}), ExchangeSpec("x", "direct", False, False, {})
    for step in (
        queue_step("q", False, {}),
        exchange_step(exchange),
        binding_step(binding),
        binding_step(binding, bind=False),
        use_queue_step("q"),
        delete_queue_step("q"),
    ):
        check_step(step)
    deep = b"\x91" * 100_000 + b"\x90"
    for operation, arguments in (("bind", deep), ("queue.declare", b"\x92\xc2\x81\xa1a" + deep)):
        with pytest.raises(UnknownStep):
            check_step(Configure(1, operation, "q", arguments))


@pytest.mark.parametrize(
    "events", [[[7]], [[7, "five"]], [[]], [["x", 1]], [[4, 1, [], None]], [[4, "q", [], 4]], [[9, 1]]]
)
def test_what_no_version_writes_is_refused_and_asked_for_again(events: list[Any]) -> None:
    """A kind that is known, with fields that it never had, is no reason to wait for an upgrade."""
    side = following()
    said = side.take(Entries(1, 7, 0, with_payload(KNOWN, events).data))
    assert [type(each.message) for each in said] == [Leave] and side.backup.refusal is None
    assert side.tick(after=10.0, session=8), "it asks to be attached again"


def structs(kind: Any) -> set[Any]:
    """The structs of which a decoder of this type makes any."""
    inner = [each.type for each in getattr(kind, "fields", ())]
    inner += [*getattr(kind, "types", ()), *getattr(kind, "item_types", ())]
    inner += [kind.item_type] if hasattr(kind, "item_type") else []
    found = {kind.cls} if isinstance(kind, msgspec.inspect.StructType) else set()
    return found.union(*map(structs, inner))


def test_a_field_more_is_unknown_wherever_it_stands() -> None:
    """Of every kind of event, and of what stands within one, as the terms of a removal and a message."""
    kinds = structs(msgspec.inspect.type_info(Event))
    assert kinds == {*get_args(Event), Terms, Message}
    assert [each for each in kinds if not each.__struct_config__.forbid_unknown_fields] == []


QUEUE, EXCHANGE = (False, {}), ExchangeSpec("x", "direct", False, False, {})
BINDING = BindingSpec("x", "q", True, "k", {})


@pytest.mark.parametrize(
    ("operation", "arguments"),
    [("queue.declare", QUEUE), ("exchange.declare", EXCHANGE), ("bind", BINDING), ("unbind", BINDING)],
)
def test_so_is_a_field_more_of_what_is_declared(operation: str, arguments: Any) -> None:
    check_step(Configure(1, operation, "n", msgspec.msgpack.encode(arguments)))
    more = [*msgspec.to_builtins(arguments), *([False] if operation == "exchange.declare" else []), "more"]
    with pytest.raises(UnknownStep, match=f"{operation}' with unknown arguments"):
        check_step(Configure(1, operation, "n", msgspec.msgpack.encode(more)))
