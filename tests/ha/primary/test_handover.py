"""When a primary gives its lease up because its disk or its checkpoints hang, to the moment (``handover``)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from ha.primary.handover import CHECKPOINT_TIMEOUTS, Handover
from ha.settings import Settings
from txobserver.ids import Member, Position

pytestmark = pytest.mark.plain
B = Member("b", "b1")
HUNG = "the disk has not written for 3 s"


class Hanging:
    """A primary whose disk writes and does not end, and a backup that holds everything."""

    def __init__(self) -> None:
        self.closed: list[str] = []
        self.released: list[Any] = []
        host: Any = SimpleNamespace(on_inactive=self.closed.append, served=None)
        self.handover = Handover(host, Settings(prepare_timeout=3.0), lambda effect: None)
        self.primary: Any = SimpleNamespace(
            writer=SimpleNamespace(writing=True), point=SimpleNamespace(serving=True, sequence=5)
        )
        self.contents = SimpleNamespace(held_bytes=0)
        self.replica: Any = SimpleNamespace(durable=5, tail=Position(1, 6), contents=self.contents)
        self.session = SimpleNamespace(full=False, acknowledged=6)

    def tick(self, now: float, passed_over: float = 0.0, unread: bool = False) -> list[str]:
        """Why its clients have been closed by then."""
        watch = SimpleNamespace(passed_over=passed_over, unread=unread)
        attachments = SimpleNamespace(holders=lambda commit: [B])
        backups: Any = SimpleNamespace(attachments=attachments, sessions={"b": self.session}, watch=watch)
        keeper: Any = SimpleNamespace(release=lambda *words: self.released.append(words), releasing=bool(self.released))
        self.handover.tick(self.primary, backups, keeper, self.replica, now)
        return self.closed


def test_it_leaves_once_however_long_the_record_takes() -> None:
    ours = Hanging()
    assert ours.tick(100.0) == ours.tick(103.0) == []
    assert ours.tick(103.1) == [HUNG] and ours.released == [("", 103.1, [B])]
    assert ours.tick(104.0) == ours.tick(120.0) == [HUNG] and len(ours.released) == 1


@pytest.mark.parametrize("durable", [0, 1, 2])
def test_a_new_primary_has_waited_for_nothing_yet(durable: int) -> None:
    """Wherever its log ends."""
    ours = Hanging()
    ours.replica.durable = durable
    assert ours.tick(100.0) == ours.tick(103.0) == [] and ours.tick(103.1) == [HUNG]


def test_a_disk_that_gets_on_does_not_hang() -> None:
    ours = Hanging()
    for second in range(100, 120, 2):
        assert ours.tick(float(second)) == []
        ours.replica.durable += 1


def test_a_disk_that_has_nothing_to_write_does_not_hang() -> None:
    ours = Hanging()
    ours.primary.writer.writing = False
    assert ours.tick(100.0) == ours.tick(200.0) == []
    ours.primary.writer.writing = True
    assert ours.tick(201.0) == []


def test_time_in_which_nothing_was_read_does_not_count() -> None:
    """What the disk has done meanwhile is not known yet."""
    ours = Hanging()
    assert ours.tick(100.0) == ours.tick(101.0) == ours.tick(150.0, 49.0) == ours.tick(152.0) == []
    assert ours.tick(152.1) == [HUNG]


def test_what_has_not_been_read_yet_may_say_that_the_disk_has_written() -> None:
    """The next tick judges: nothing of the time is lost."""
    ours = Hanging()
    assert ours.tick(100.0) == ours.tick(103.1, 0.0, unread=True) == [] and ours.tick(103.12) == [HUNG]


LATE = 3.0 * CHECKPOINT_TIMEOUTS


def behind() -> Hanging:
    """The disk of its log writes, and its checkpoints have been behind since 100 s."""
    ours = Hanging()
    ours.primary.writer.writing = False
    assert ours.tick(100.0) == []
    ours.contents.held_bytes = 1 << 40
    return ours


def test_checkpoints_that_hang_are_waited_for_longer() -> None:
    ours = behind()
    assert ours.tick(100.0 + LATE) == [] and ours.tick(100.1 + LATE) != []
    assert ours.tick(200.0 + LATE) == ours.closed and len(ours.closed) == 1
    assert ours.released == [("", 100.1 + LATE, [B])]


def test_checkpoints_are_not_behind_in_a_time_in_which_nothing_was_read() -> None:
    ours = behind()
    assert ours.tick(200.0 + LATE, 100.0) == ours.tick(200.0 + LATE) == [] and ours.tick(200.1 + LATE) != []


def test_checkpoints_that_have_caught_up_meanwhile_do_not_hang() -> None:
    ours = behind()
    ours.contents.held_bytes = 0
    ours.tick(100.0 + LATE)
    ours.contents.held_bytes = 1 << 40
    assert ours.tick(101.0 + LATE) == []


def test_it_is_not_left_to_one_whose_checkpoints_are_behind_as_well() -> None:
    ours = behind()
    ours.session.full = True
    assert ours.tick(200.0 + LATE) == [] and ours.primary.point.serving
    ours.session.full = False
    assert len(ours.tick(201.0 + LATE)) == 1
