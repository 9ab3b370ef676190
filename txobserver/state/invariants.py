"""What must be so of the applied state: queues, configuration, names, outcomes (``txobserver.invariants``)."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

from txobserver.bindings import Bindings, key_of
from txobserver.buffer_invariants import check_buffer
from txobserver.configuration import PREDECLARED, Configuration
from txobserver.digest import MASK, mix
from txobserver.events import TxDequeue
from txobserver.ids import INDEX_BITS, LAST_CONFIG_ID, generation_of
from txobserver.invariants import WALKED, differ, never_falls, rises
from txobserver.outcomes import Kind, Outcomes, Remembered, name_of
from txobserver.ports.store import END, Changes, MemoryBase, StoreError
from txobserver.state.contents import Contents
from txobserver.state.offsets import Offsets
from txobserver.state.transaction_table import TransactionTable
from txobserver.tx_buffer import ABORTED, PREPARED
from txobserver.vhosts import local_name


def check_contents(contents: Contents, whole: bool) -> None:
    """What costs the same however much there is. ``whole``: the state is what a prefix of the stream leads to."""
    applied, configuration = contents.applied, contents.configuration
    assert applied.sequence >= 0, f"P7: applied up to {applied}"
    assert applied.generation >= 0, f"P10: applied up to {applied}"
    assert contents.dirty_bytes >= 0, f"P12: {contents.dirty_bytes} bytes of changes wait for a checkpoint"
    assert contents.held_bytes >= contents.dirty_bytes, f"P12: {contents.held_bytes} bytes of changes are in memory"
    assert 0 <= configuration.last_id <= LAST_CONFIG_ID, f"P7: {configuration.last_id} steps of configuration"
    if whole:
        held, declared = len(contents.queues._tallies), len(configuration.queues)
        assert held == declared, f"P7: {held} queues are held, and {declared} are declared"
    check_outcomes(contents.table.outcomes, applied.sequence)


def check_contents_deep(contents: Contents, whole: bool) -> None:
    """Everything that is in memory of it."""
    check_configuration(contents.configuration)
    check_outcomes_deep(contents.table.outcomes)
    check_table(contents.table, contents.applied.sequence)
    if whole:
        declared, held = contents.configuration.numbers(), contents.queues.numbers()
        assert held == declared, f"P7: the queues {sorted(held ^ declared)[:5]} are held or declared, and not both"
    _check_layers(contents, contents.layers.fresh, contents.layers.fresh_offsets, whole)
    _check_layers(contents, contents.layers._frozen, contents.layers._frozen_offsets, whole)
    assert contents.layers.fresh.keys() <= contents.queues._tallies.keys(), "P4: a queue that is not there has messages"
    for queue, tally in contents.queues._tallies.items():
        assert queue >= 1, f"P5: there is a queue {queue}"
        assert tally.count >= 0, f"P3: queue {queue} holds {tally.count} messages"
        assert 0 <= tally.digest <= MASK, f"P7: queue {queue} has the digest {tally.digest}"
        assert tally.watermark >= 0, f"P3: messages of queue {queue} up to {tally.watermark} may be handed out"
        assert tally.count or not tally.digest, f"P7: queue {queue} is empty, and its digest is {tally.digest}"
        fresh = sum(entry is not None for entry in contents.layers.fresh.get(queue, {}).values())
        assert fresh <= tally.count, f"P7: queue {queue} got {fresh} messages, and holds {tally.count}"
    for queue, readings in contents.layers.readings.items():
        assert readings, f"P12: queue {queue} is marked as read, and has no reading"
        assert differ(map(id, readings)), f"P12: a page of queue {queue} is awaited twice"
        assert all(each.queue == queue for each in readings), f"P5: a page of another queue is read for {queue}"
    if isinstance(contents.layers.base, MemoryBase):
        _check_content(contents, whole)


def _check_layers(contents: Contents, layers: Changes, offsets: dict[int, Offsets], whole: bool) -> None:
    last = contents.applied.sequence
    assert layers.keys() == offsets.keys(), "P7: the offsets of a layer are those of other queues"
    for queue, layer in layers.items():
        if len(layer) > WALKED:
            continue
        listed = set(offsets[queue]._offsets)
        for offset, entry in layer.items():
            assert 0 <= offset < END, f"P8: queue {queue} has a message at {offset}"
            if entry is None:
                continue
            assert offset in listed, f"P7: the message of queue {queue} at {offset} is in no page of it"
            assert entry.rid >= 0, f"P3: the message of queue {queue} at {offset} has the id {entry.rid}"
            if whole and layers is contents.layers.fresh and not contents.queues._in_step:
                assert offset >> INDEX_BITS <= last, f"P4: queue {queue} holds {offset}, behind {contents.applied}"
        listed_in_order = not offsets[queue]._sorted or never_falls(offsets[queue]._offsets)
        assert listed_in_order, f"P8: queue {queue} is out of order"


def _check_content(contents: Contents, whole: bool) -> None:
    """Count and digest of each queue are those of its messages, where the base is in memory as well."""
    for queue, tally in contents.queues._tallies.items():
        if tally.count > WALKED:
            continue
        try:
            there = contents.messages.ids(queue)
        except StoreError:
            return  # a disk that cannot be read has ended the node, or will
        digest = sum(mix(offset, rid) for offset, rid in there) & MASK
        assert len(there) == tally.count, f"P7: queue {queue} holds {len(there)} messages, and counts {tally.count}"
        assert digest == tally.digest, f"P7: the digest of queue {queue} is not that of its messages"
        assert rises(offset for offset, _ in there), f"P8: the messages of queue {queue} are not in order"
        assert differ(rid for _, rid in there), f"P3: a message is in queue {queue} twice"
        newest = max((generation_of(rid) for _, rid in there), default=0)
        assert not whole or newest <= contents.applied.generation, f"P5: queue {queue} has an id of {newest}"


def check_configuration(configuration: Configuration) -> None:
    """Names, numbers, and the ends of bindings."""
    last = configuration.last_id
    numbers = [spec.number for spec in configuration.queues.values()]
    assert differ(numbers), "P7: two queues have one number"
    assert len(numbers) <= last, f"P7: {len(numbers)} queues are declared by {last} steps"
    for name, queue in configuration.queues.items():
        assert queue.name == name, f"P7: the queue {queue.name!r} goes by {name!r}"
        assert 1 <= queue.number <= last, f"P7: the queue {name!r} has the number {queue.number} after {last} steps"
    for name, exchange in configuration.exchanges.items():
        assert exchange.name == name, f"P7: the exchange {exchange.name!r} goes by {name!r}"
        assert exchange.kind, f"P7: the exchange {name!r} is of no kind"
    if len(configuration.bindings) > WALKED:
        return
    for each in configuration.bindings:
        source = each.source in configuration.exchanges or local_name(each.source).startswith(PREDECLARED)
        assert source, f"P7: a binding leads from {each.source!r}, which is not there"
        there = each.destination in (configuration.queues if each.to_queue else configuration.exchanges)
        there = there or (not each.to_queue and local_name(each.destination).startswith(PREDECLARED))
        assert there, f"P7: a binding leads to {each.destination!r}, which is not there"
    check_bindings(configuration.bindings)


def check_bindings(bindings: Bindings) -> None:
    """Each by its own name, and the index of both ends, if there is one, of them and no others."""
    for key, each in bindings._all.items():
        assert key_of(each) == key, f"P7: a binding from {each.source!r} goes by {key!r}"
    if not bindings._indexed:
        return
    keys = [key for ends in bindings._from.values() for group in ends.values() for key in group]
    assert len(keys) == len(bindings._all), f"P7: {len(keys)} of {len(bindings._all)} bindings are found"
    assert bindings._all.keys() == set(keys), "P7: the index of the bindings is of others"
    for source, ends in bindings._from.items():
        assert ends, f"P12: the exchange {source!r} is noted, and nothing leads away from it"
        for end, group in ends.items():
            assert group, f"P12: the end {end} is noted, and no binding leads there from {source!r}"
            assert bindings._to[end][source] is group, f"P7: the bindings from {source!r} to {end} are found once"
    towards = sum(map(len, bindings._to.values()))
    assert towards == sum(map(len, bindings._from.values())), "P7: an end is noted that no exchange leads to"


def check_table(table: TransactionTable, applied: int) -> None:
    """Transactions with a name, branches in doubt, and what these lock."""
    for name, live in table._live.items():
        assert live.name == name, f"P6: the transaction {live.name!s} goes by {name!s}"
    prepared = [each.prepared or 0 for each in table.prepared.values()]
    assert rises(prepared), f"P12: the branches in doubt are listed in the order {prepared}"
    locked: dict[int, list[int]] = {}
    for xid, branch in table.prepared.items():
        check_buffer(branch)
        assert branch.xid == xid, f"P6: the branch {branch.xid} goes by {xid}"
        assert branch.stays, f"P2: the branch {xid} is in doubt and would not survive a failover"
        assert branch.prepared is not None, f"P6: the branch {xid} is in doubt and was never prepared"
        assert branch.prepared <= applied, f"P6: the branch {xid} is in doubt by a prepare behind {applied}"
        assert branch.state != PREPARED or table._live.get(xid) is branch, f"P12: the branch {xid} is not known"
        assert branch.state == ABORTED or xid.globally in table._branches, f"P12: {xid} is not among its siblings"
        for _, event in branch.events:
            if isinstance(event, TxDequeue):
                locked.setdefault(event.queue, []).extend(offset for offset, _ in event.entries)
    for queue, offsets in locked.items():
        assert differ(offsets), f"P3: two branches in doubt dequeue one message of queue {queue}"
        assert table.locked(queue) == set(offsets), f"P3: of queue {queue} other messages are locked"
    for globally, siblings in table._branches.items():
        assert siblings, f"P6: the global transaction {globally} has no branch"
        for tx, buffer in siblings.items():
            assert buffer.tx == tx, f"P6: the branch {buffer.xid} is transaction {buffer.tx}, not {tx}"
            assert buffer.xid.globally == globally, f"P6: {buffer.xid} counts as a branch of {globally}"
    for globally, commit in table.deciding.items():
        found = table.outcomes.find(globally)
        assert found is None or found.commit is commit, f"P6: {globally} is decided twice"


def check_outcomes(outcomes: Outcomes, applied: int) -> None:
    """What is remembered, by its counts and by the last of each kind."""
    tables: list[OrderedDict[Any, Remembered]]
    tables = [outcomes.branches, outcomes.heuristics, outcomes.tokens, outcomes.globals]
    held = sum(map(len, tables))
    assert outcomes._count == held, f"P7: {held} outcomes are remembered, and {outcomes._count} are counted"
    assert held or not outcomes._digest, f"P7: no outcome is remembered, and their digest is {outcomes._digest}"
    assert 0 <= outcomes._digest < (1 << 63), f"P7: the digest of the outcomes is {outcomes._digest}"
    assert outcomes._clock_ms >= 0, f"P6: the stream's clock shows {outcomes._clock_ms} ms"
    assert outcomes._stamp_ms >= 0, f"P6: the last decision was made at {outcomes._stamp_ms} ms"
    assert len(outcomes._expired) == len(Kind), f"P6: {len(outcomes._expired)} kinds of outcomes expire"
    for kind, table in zip(Kind, tables, strict=True):
        expired = outcomes._expired[kind]
        assert expired >= 0, f"P6: what was decided up to {expired} has expired"
        if table:
            first = next(iter(table.values()))
            assert first.kind is kind, f"P6: an outcome of {first.kind!r} stands among those of {kind!r}"
            assert first.sequence > expired, f"P6: the outcome of {first.sequence} is older than what has expired"
            last = next(reversed(table.values()))
            assert last.sequence <= applied, f"P6: the outcome of {last.sequence} is told at {applied}"
    assert not outcomes._expired[Kind.HEURISTIC], "P6: an operator's decision has expired"


def check_outcomes_deep(outcomes: Outcomes) -> None:
    """Each of them."""
    if outcomes._count > WALKED:
        return
    found = outcomes.all()
    digest = sum(each.digest for each in found) % (1 << 63)
    assert outcomes._digest == digest, "P7: the digest of the outcomes is not theirs"
    tables: list[OrderedDict[Any, Remembered]]
    tables = [outcomes.branches, outcomes.heuristics, outcomes.tokens, outcomes.globals]
    for table in tables:
        for name, each in table.items():
            assert name_of(each) == name, f"P6: the outcome of {name_of(each)!s} stands under {name!s}"
            assert each.sequence >= 0, f"P6: {name!s} was decided at {each.sequence}"
        assert rises(each.sequence for each in table.values()), "P6: an older outcome stands behind a younger one"
    assert not outcomes.branches.keys() & outcomes.heuristics.keys(), "P6: a branch has two outcomes"
    siblings = [xid for known in outcomes._of_global.values() for xid in known]
    assert len(siblings) == len(outcomes.branches) + len(outcomes.heuristics), "P6: a branch is not among its siblings"
    assert all(outcomes._of_global.values()), "P6: a global transaction without a branch is remembered"
