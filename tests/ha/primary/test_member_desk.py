"""Where the primary takes changes of the members (``ha.primary.member_desk``), and a node takes its own."""

from __future__ import annotations

from typing import Any

import pytest

from ha.effects import CompareAndSet, Send
from ha.member_relay import MemberRelay
from ha.membership.member_changes import HANDED_OVER, UNKNOWN
from ha.membership.members import ADD, MOVE, REMOVE, MemberChange, Membership, wrong_in
from ha.membership.record import Record
from ha.membership.record_keeper import RecordKeeper
from ha.messages.attaching import AttachmentRefused
from ha.messages.member_asks import MemberAsk, MemberTold
from ha.primary.member_desk import RAISE_FIRST, MemberDesk
from ha.refusals import NO_PRIMARY, NOT_ACTIVE
from tests.ha.membership.test_members import FOLLOW, A, B, C, nodes_of, record_of
from txobserver.actions import MEMBERS_FLAG
from txobserver.ids import Member


class Session:
    def __init__(self, member: Member, number: int) -> None:
        self.member, self.number, self.session = member, number, number


class Followers:
    """Stands for the attachments."""

    def __init__(self, sent: list[Any]) -> None:
        self.sessions = {each.node: Session(each, 7) for each in (B, C)}
        self.parked: dict[str, Session] = {}
        self._sent = sent

    def refuse(self, node: str, number: int, why: str) -> None:
        self._sent.append(Send(node, AttachmentRefused(3, number, why)))

    def detach(self, node: str, now: float) -> None:
        self.sessions.pop(node, None)
        self.parked.pop(node, None)


class Calls:
    def __init__(self, *flags: str) -> None:
        self.flags = flags

    def names_of(self, operation: str) -> list[str]:
        return list(self.flags)


class Primary:
    def __init__(self, record: Record, *flags: str) -> None:
        self.effects: list[Any] = []
        self.told: list[str | None] = []
        self.keeper = RecordKeeper(record, 100.0, A, FOLLOW, self.effects.append)
        self.followers: Any = Followers(self.effects)
        founding = tuple(each for each in nodes_of(A, B, C, counts=False))
        calls: Any = Calls(*flags)
        self.desk = MemberDesk(self.keeper, self.followers, founding, lambda: calls, self.effects.append)

    def ask(self, change: MemberChange, active: bool = True) -> None:
        self.desk.ask(change, active, 100.0, self.told.append)

    def sent(self) -> list[Any]:
        return [(each.peer, each.message) for each in self.effects if isinstance(each, Send)]

    def stored(self) -> None:
        asked = [each for each in self.effects if isinstance(each, CompareAndSet)][-1]
        self.keeper.stored(asked.record)  # type: ignore[arg-type]
        self.desk.let_go(100.0)


def test_the_first_change_needs_the_flag_and_no_later_one_does() -> None:
    primary = Primary(Record("c", 5, 3, A, (A, B), cluster_id="id"))
    primary.ask(MemberChange(REMOVE, "c"))
    assert primary.told == [RAISE_FIRST]
    raised = Primary(Record("c", 5, 3, A, (A, B), cluster_id="id"), MEMBERS_FLAG)
    raised.ask(MemberChange(REMOVE, "c"))
    raised.stored()
    assert raised.told == [None]
    later = Primary(record_of(nodes_of(A, B, C), A, B))
    later.ask(MemberChange(REMOVE, "c"), active=False)
    later.ask(MemberChange(REMOVE, "c"))
    later.stored()
    assert later.told == [NOT_ACTIVE, None]


def test_a_joiner_that_is_removed_is_let_go_of() -> None:
    """It was in no ready set, so nothing else would."""
    primary = Primary(record_of(nodes_of(A, B, C), A, B))
    primary.ask(MemberChange(REMOVE, "c"))
    primary.stored()
    ((node, message),) = primary.sent()
    assert (node, message.session) == ("c", 7) and "c was removed from cluster c" in message.reason
    assert list(primary.followers.sessions) == ["b"]


def test_one_that_waits_to_be_attached_is_let_go_of_as_well() -> None:
    """By the number that it has asked with; and every store that is there is refused from then on."""
    primary = Primary(record_of(nodes_of(A, B, C), A, B))
    other = Member("c", "c2")
    del primary.followers.sessions["c"]
    primary.followers.parked["c"] = Session(other, 8)
    primary.ask(MemberChange(REMOVE, "c"))
    primary.stored()
    ((node, message),) = primary.sent()
    assert (node, message.session) == ("c", 8) and not primary.followers.parked
    found = primary.keeper.record.membership
    assert isinstance(found, Membership) and found.removed == (C, other)


def test_names_and_hosts_may_be_so_long() -> None:
    host = ".".join(["h" * 63] * 3 + ["h" * 61])
    for change in (MemberChange(ADD, "x" * 100, host, 65535), MemberChange(REMOVE, "x"), MemberChange(REMOVE, " ")):
        assert wrong_in(change) is None


def test_another_node_is_answered() -> None:
    primary = Primary(record_of(nodes_of(A, B, C), A, B))
    primary.desk.asked("b", MemberAsk(3, 11, REMOVE, "x", "", 0), True, 100.0)
    primary.desk.asked("b", MemberAsk(3, 12, REMOVE, "c", "", 0), True, 100.0)
    primary.stored()
    answers = [message for _, message in primary.sent() if isinstance(message, MemberTold)]
    assert [(each.number, each.error) for each in answers] == [
        (11, "there is no member x; there are a, b, c"),
        (12, None),
    ]


def test_told_by_a_former_primary() -> None:
    """It says nothing to another node when its role ends; to its own operator it does."""
    primary = Primary(record_of(nodes_of(A, B, C), A, B))
    primary.keeper.send_if_due(200.0)
    primary.desk.asked("b", MemberAsk(3, 12, REMOVE, "c", "", 0), True, 200.0)
    primary.desk.end()
    assert primary.sent() == []
    own = Primary(record_of(nodes_of(A, B, C), A, B))
    own.keeper.send_if_due(200.0)
    own.ask(MemberChange(REMOVE, "c"))
    own.desk.end()
    assert own.told == [HANDED_OVER]


def test_a_node_that_asks_hears_once() -> None:
    sent: list[Any] = []
    told: list[str | None] = []
    relay = MemberRelay(sent.append, 40)
    relay.ask("a", frozenset({MEMBERS_FLAG}), 3, MemberChange(MOVE, "b", "h", 5), told.append)
    relay.ask("a", frozenset({MEMBERS_FLAG}), 3, MemberChange(REMOVE, "b"), told.append)
    assert sent[0] == Send("a", MemberAsk(3, 41, MOVE, "b", "h", 5))
    relay.answered(MemberTold(3, 41, None))
    relay.answered(MemberTold(3, 41, "again"))
    relay.lost()
    relay.lost()
    assert told == [None, UNKNOWN]


@pytest.mark.parametrize(("primary", "why"), [("", NO_PRIMARY), ("a", "upgrade it first")])
def test_a_node_asks_nothing_of_whom_it_does_not_know_or_who_knows_nothing_of_it(primary: str, why: str) -> None:
    sent: list[Any] = []
    told: list[str | None] = []
    MemberRelay(sent.append, 40).ask(primary, frozenset({"calls"}), 3, MemberChange(REMOVE, "b"), told.append)
    assert not sent and len(told) == 1 and told[0] is not None and told[0].endswith(why)


@pytest.mark.parametrize(
    "change",
    [
        MemberChange("rename", "b"),
        MemberChange(ADD, "", "h", 1),
        MemberChange(ADD, "x" * 101, "h", 1),
        MemberChange(ADD, "b", "", 1),
        MemberChange(MOVE, "b", "h" * 254, 1),
        MemberChange(MOVE, "b", "h", 0),
        MemberChange(ADD, "b", "h", 65536),
        *(MemberChange(ADD, name, "h", 1) for name in ("b\n", " ", "b ", "\u00a0b")),
        *(MemberChange(ADD, "b", host, 1) for host in ("10..0.0.4", ".a", "a\u3002\u3002b", "h" * 64, "h\n")),
        *(MemberChange(MOVE, "b", host, 1) for host in ("a\u2028b", "a b", "\ud800", "0.0.0.0", "::")),
    ],
)
def test_what_no_node_could_be_called_or_found_by(change: MemberChange) -> None:
    primary = Primary(Record("c", 5, 3, A, (A, B), cluster_id="id", membership=Membership(1, nodes_of(A, B))))
    primary.ask(change)
    assert primary.told == [wrong_in(change)] and primary.told[0] and not primary.effects
