"""What must be so of the primary's stream, its transactions and its answers (``txobserver.invariants``)."""

from __future__ import annotations

from itertools import pairwise

from ha.apply.replica import Replica
from ha.primary.backlog import Backlog
from ha.primary.commit_point import CommitPoint
from ha.primary.fanout import Star
from ha.primary.handover import Handover
from ha.primary.primary import Primary
from ha.primary.readings import Readings
from ha.primary.stream_decisions import StreamDecisions
from ha.primary.writer import Writer
from txobserver.ids import LAST_COUNTER, LAST_SEQUENCE, id_text, offset_of
from txobserver.invariants import WALKED, never_falls, rises
from txobserver.tx_buffer import PREPARED, DtxBuffer


def check_primary(primary: Primary) -> None:
    """The end of the stream, the commit point, and who waits for it."""
    replica, writer, point = primary._replica, primary.writer, primary.point
    assert primary.generation >= 1, f"P10: a primary of generation {primary.generation}"
    assert writer.generation == primary.generation, f"P10: generation {writer.generation} is written in another"
    assert replica.tail.generation == primary.generation, f"P10: the stream ends at {replica.tail}"
    assert replica.whole, "P2: a primary holds no whole state"
    assert not replica.resyncing, "P2: the store of a primary is being overwritten"
    assert primary._opened_to <= replica.tail.sequence, f"P2: the generation is opened up to {primary._opened_to}"
    assert point.serving is False or primary.in_step, "P2: clients are served before all that was told has passed"
    _check_writer(writer, replica)
    _check_point(point, replica, writer)
    _check_backlog(writer.backlog, writer, point)
    _check_decisions(primary.decisions, replica, writer)
    _check_readings(primary.readings, replica)


def _check_writer(writer: Writer, replica: Replica) -> None:
    tail, group = replica.tail.sequence, writer._group
    assert 0 <= writer.ids.given <= LAST_COUNTER, f"P3: {writer.ids.given} ids have been given"
    assert writer._framed <= tail, f"P7: a frame ends at {writer._framed}, and the stream at {tail}"
    assert writer._group_first >= 1, f"P7: a group begins at {writer._group_first}"
    assert writer._group_first <= LAST_SEQUENCE + 1, f"P7: a group begins at {writer._group_first}"
    assert writer._framed < writer._group_first, f"P7: a group begins at {writer._group_first}, within a frame"
    assert writer.writing == (replica.durable < writer._framed), "P12: what is on its way to the disk is forgotten"
    if group and not writer.abandoned:
        last = writer._group_first + len(group) - 1
        assert last == tail, f"P7: the group ends at {last}, and the stream at {tail}"
        assert writer._framed in (0, writer._group_first - 1), "P7: events are in no frame and in no group"
        assert writer.writing, "P12: a group waits though nothing is being written"
    if not group and not writer.abandoned:
        assert writer._framed == tail, f"P11: the stream ends at {tail}, and what is written at {writer._framed}"
    assert writer.at_end is None or writer.at_end, "P12: nothing new is taken, and no reason is given"


def _check_point(point: CommitPoint, replica: Replica, writer: Writer) -> None:
    tail, applied = replica.tail.sequence, replica.applied.sequence
    assert point.sequence >= 0, f"P11: the commit point is at {point.sequence}"
    assert point.sequence <= replica.durable, f"P11: {point.sequence} has passed, and {replica.durable} is on the disk"
    assert applied == point.sequence, f"P11: {applied} is applied, and the commit point is at {point.sequence}"
    if point._waiting and not writer.abandoned:
        first, last = point._waiting[0][0], point._waiting[-1][0]
        assert first > point.sequence, f"P12: {first} has passed, and was not answered"
        assert last <= tail, f"P12: an answer waits for {last}, and the stream ends at {tail}"
        assert first <= last, f"P12: an answer for {last} waits behind one for {first}"


def _check_backlog(backlog: Backlog, writer: Writer, point: CommitPoint) -> None:
    assert backlog._gathered >= 0, f"P12: {backlog._gathered} bytes are being gathered"
    assert backlog._framed >= 0, f"P12: {backlog._framed} bytes of frames wait"
    assert backlog._limit > 0, f"P12: {backlog._limit} bytes may wait"
    assert backlog._frames or not backlog._framed, f"P12: {backlog._framed} bytes of no frame wait"
    if backlog._frames:
        first, last = backlog._frames[0][0], backlog._frames[-1][0]
        assert first > point.sequence, f"P12: the frame up to {first} has passed, and is counted"
        assert last == writer._framed, f"P12: the frame up to {last} was made last, and {writer._framed} is framed"


def check_star(star: Star, writer: Writer) -> None:
    """The newest frames, of which backups in step are served."""
    recent = star.recent
    frames = recent._frames
    assert recent._bytes >= 0, f"P12: {recent._bytes} bytes of frames are kept"
    assert len(frames) <= 1 or recent._bytes <= recent._limit, f"P12: {recent._bytes} bytes of frames are kept"
    if frames:
        newest = frames[-1]
        assert newest.last == writer._framed, f"P7: the frame up to {newest.last} is kept, and {writer._framed} made"
        assert newest.generation == writer.generation, f"P10: a frame of generation {newest.generation} is kept"
        assert frames[0].first <= newest.first, "P7: the frames that are kept are not in order"
        assert recent.starting_at(newest.first) is newest, f"P12: the frame at {newest.first} is not found"


def check_star_deep(star: Star) -> None:
    """All of them."""
    frames = list(star.recent._frames)
    assert star.recent._bytes == sum(len(each.data) for each in frames), "P12: what is kept is counted otherwise"
    for one, other in pairwise(frames):
        assert other.first == one.last + 1, f"P7: the frame at {other.first} follows one that ends with {one.last}"


def _check_decisions(decisions: StreamDecisions, replica: Replica, writer: Writer) -> None:
    """Whose votes are awaited: closed here, and not decided."""
    transactions, branches = decisions.transactions._preparing, decisions.branches._preparing
    factory = decisions.factory
    assert factory.open_bytes >= 0, f"P12: {factory.open_bytes} bytes of transactions are open"
    assert factory.open_events >= 0, f"P12: {factory.open_events} events of transactions are open"
    assert 0 <= factory._counter <= LAST_COUNTER, f"P6: {factory._counter} transactions have begun"
    assert factory._generation == writer.generation, f"P6: transactions of generation {factory._generation} begin"
    assert not transactions.keys() & branches.keys(), "P6: a transaction is prepared as a branch too"
    voted = decisions.branches._voted
    assert not voted.keys() & branches.keys(), "P6: a branch has voted whose votes are awaited"
    if decisions.below_min_ready:
        assert not transactions, "P11: transactions are prepared below min_ready"
        assert not branches, "P11: branches are prepared below min_ready"
    if transactions:
        tx = next(reversed(transactions))
        buffer = replica.buffers.get(tx)
        assert buffer is not None, f"P1: votes are awaited for {id_text(tx)}, which is not held"
        assert buffer.prepared is not None, f"P6: votes are awaited for {id_text(tx)}, which is not closed"
        assert buffer.decided is None, f"P6: votes are awaited for {id_text(tx)}, which is decided"
        assert buffer.prepared > replica.applied.sequence, f"P12: {id_text(tx)} is prepared, and not decided"


def _check_readings(readings: Readings, replica: Replica) -> None:
    assert readings._open.keys() <= readings._waiting.keys(), "P12: a page is read, and no reading waits for it"
    read = sum(len(each) for each in replica.contents.layers.readings.values())
    assert read == len(readings._open), f"P12: {read} pages are noted, and {len(readings._open)} are asked for"


def check_primary_deep(primary: Primary) -> None:
    """All answers, frames and transactions that wait."""
    replica, writer, decisions = primary._replica, primary.writer, primary.decisions
    waiting = primary.point._waiting
    if len(waiting) <= WALKED and not writer.abandoned:
        assert never_falls(sequence for sequence, _ in waiting), "P12: an answer waits behind a later one"
    backlog = writer.backlog
    assert backlog._framed == sum(size for _, size in backlog._frames), (
        "P12: the frames that wait are counted otherwise"
    )
    assert rises(last for last, _ in backlog._frames), "P7: the frames that wait are not in order"
    for tx in decisions.transactions._preparing:
        buffer = replica.buffers.get(tx)
        assert buffer is not None, f"P1: votes are awaited for {id_text(tx)}, which is not held"
        assert buffer.state == PREPARED, f"P6: votes are awaited for {id_text(tx)}, which is {buffer.state}"
        assert buffer.complete, f"P1: {id_text(tx)} is prepared with {len(buffer.events)} of {buffer.count} events"
        assert primary.name in buffer.participants, f"P11: the primary takes no part in {id_text(tx)}"
    for tx, (branch, _) in decisions.branches._preparing.items():
        assert replica.buffers.get(tx) is branch, (
            f"P1: votes are awaited for the branch {branch.xid}, which is not held"
        )
        assert isinstance(branch, DtxBuffer), f"P6: {id_text(tx)} is prepared as a branch"
        assert branch.stays, f"P2: the branch {branch.xid} is prepared and would not survive a failover"
        assert branch.state == PREPARED, f"P6: votes are awaited for the branch {branch.xid}, which is {branch.state}"
        assert branch.complete, f"P1: the branch {branch.xid} is prepared with {len(branch.events)} of its events"
    ahead = {(each.format_id, each.gtrid): each.commit for each in replica.decisions_ahead()}
    for globally, commit in replica.contents.table.deciding.items():
        found = ahead.get((globally.format_id, globally.gtrid))
        assert found is commit, f"P6: {globally} is decided, and no decision of it is on its way"
    end = offset_of(replica.tail.sequence + 1)
    for queue, offsets in primary._additions._offsets.items():
        assert rises(offsets), f"P8: messages enter queue {queue} at {offsets[:5]}"
        assert not offsets or offsets[-1] < end, f"P5: a message enters queue {queue} at {offsets[-1]}, behind the end"
    queues = replica.contents.queues
    for queue, limit in primary._additions._limits.items():
        assert limit >= 0, f"P3: consumers of queue {queue} could take the first {limit} messages"
        assert queues.knows(queue), f"P3: consumers wait for messages of queue {queue}, which does not exist"


def check_handover(handover: Handover, primary: Primary) -> None:
    """One that has begun serves no client, but for what drains."""
    begun, drains = handover._successor is not None, handover.draining
    assert not begun or drains or not primary.point.serving, "P10: clients are served during a handover"
    assert begun or not drains, "P12: clients are drained, and no handover has begun"
    assert handover._durable >= -1, f"P11: {handover._durable} is on the disk"
    assert handover._successor != primary.name, f"P10: {primary.name} hands over to itself"
