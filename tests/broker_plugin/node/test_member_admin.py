"""What a node answers to ``txha member``, and who the others are by it (``broker_plugin.node.member_admin``)."""

from __future__ import annotations

from typing import Any

import pytest

from broker_plugin.admin.server import CommandRefused
from broker_plugin.node.member_admin import MemberAdmin, members_shown, others_of
from ha.membership.members import ADD, MOVE, REMOVE, ClusterNode, MemberChange, Membership
from ha.membership.record import Record
from ha.settings import Settings
from txobserver.ids import Member

A, B = Member("a", "a1"), Member("b", "b1")
NODES = (ClusterNode("a", "ha", 1, True, "a1"), ClusterNode("b", "hb", 2, True, "b1"), ClusterNode("c", "hc", 3))
UNSAID = Record("c", 4, 2, A, (A, B), cluster_id="id")
SAID = Record("c", 4, 2, A, (A, B), cluster_id="id", membership=Membership(7, NODES, (Member("d", "d1"),)))


class Core:
    """Stands for the core of node a. ``answers``: what it tells of each change."""

    def __init__(self, record: Record | None, *answers: str | None, min_ready: int = 2) -> None:
        self.record, self.member, self.linked = record, A, {"b"}
        self.settings = Settings(min_ready=min_ready, follow_members=True)
        self.founding = (ClusterNode("a", "fa", 1), ClusterNode("z", "fz", 9))
        self.asked: list[MemberChange] = []
        self._answers = answers

    def change_members(self, change: MemberChange, told: Any) -> None:
        self.asked.append(change)
        for answer in self._answers:
            told(answer)


def admin_of(core: Any) -> MemberAdmin:
    return MemberAdmin(core, lambda call: call(), lambda: "")


def test_the_record_says_who_is_a_member_and_the_file_until_it_does() -> None:
    core: Any = Core(SAID)
    assert others_of(core) == ["b", "c"]
    shown = members_shown(core)
    rows = [{"host": f"h{name}", "port": port, "name": name} for port, name in enumerate("abc", 1)]
    for row, ready in zip(rows, (True, True, False), strict=True):
        row |= {"ready": ready, "counts": ready, "primary": row["name"] == "a", "reached": row["name"] != "c"}
    assert shown == {"in_record": True, "change": 7, "members": rows, "min_ready": 1, "removed_stores": ["d/d1"]}
    core = Core(UNSAID)
    shown = members_shown(core)
    assert others_of(core) == ["z"]
    assert [(each["name"], each["host"], each["counts"], each["ready"]) for each in shown["members"]] == [
        ("a", "fa", True, True),
        ("z", "fz", True, False),
    ]
    assert (shown["in_record"], shown["change"], shown["min_ready"], shown["removed_stores"]) == (False, 0, 2, [])


@pytest.mark.parametrize(("complaint", "told"), [("", None), *[("etcd gives no answer: h:1",) * 2]])
async def test_a_list_that_may_be_old_says_why(complaint: str, told: str | None) -> None:
    core: Any = Core(SAID)
    admin = MemberAdmin(core, lambda call: call(), lambda: complaint)
    assert await admin.handlers["members.list"]({}) == {**members_shown(core), "record_error": told}


def test_a_node_that_knows_no_record_shows_its_file() -> None:
    shown = members_shown(Core(None))  # type: ignore[arg-type]
    assert shown["min_ready"] == 2 and not any(each["ready"] or each["primary"] for each in shown["members"])


@pytest.mark.parametrize(
    "change", [MemberChange(ADD, "c", "h", 5), MemberChange(MOVE, "c", "h", 5), MemberChange(REMOVE, "c")]
)
async def test_a_change_is_answered_when_the_core_has_told(change: MemberChange) -> None:
    """Once, whatever comes behind that."""
    core = Core(SAID, None, "again")
    arguments = {name: value for name, value in change._asdict().items() if value}
    assert await admin_of(core).handlers["members.change"](arguments) == arguments and core.asked == [change]


async def test_a_change_that_is_not_made_is_refused_with_the_reason() -> None:
    with pytest.raises(CommandRefused, match=r"^the primary hands over$"):
        await admin_of(Core(SAID, "the primary hands over")).handlers["members.change"]({"kind": REMOVE, "name": "c"})


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"kind": ADD},
        {"kind": ADD, "name": 5, "host": "h", "port": 5},
        {"kind": ADD, "name": "c", "host": None, "port": 5},
        {"kind": ADD, "name": "c", "host": "h", "port": True},
        {"kind": ADD, "name": "c", "host": "h", "port": "5"},
        {"kind": ADD, "name": "c", "host": "h", "port": 65536},
        {"kind": ADD, "name": "c"},
        {"kind": "rename", "name": "c", "host": "h", "port": 5},
        {"kind": REMOVE, "name": ""},
    ],
)
async def test_what_is_no_change_reaches_no_core(arguments: dict[str, Any]) -> None:
    core = Core(SAID, None)
    with pytest.raises(CommandRefused):
        await admin_of(core).handlers["members.change"](arguments)
    assert not core.asked
