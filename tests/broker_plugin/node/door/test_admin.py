"""What the HTTP door asks of its node: logins, health, and whose change is what."""

from __future__ import annotations

import base64
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec import UNSET

from broker_plugin.admin.server import CommandRefused
from broker_plugin.amqp.protocol.logins import FREE, Logins
from broker_plugin.node import verdicts
from broker_plugin.node.audited_changes import AuditedChanges
from broker_plugin.node.door.admin import DoorAdmin
from broker_plugin.node.readiness import Readiness
from broker_plugin.node.rule_admin import RuleAdmin
from broker_plugin.node.user_admin import UserAdmin
from txobserver.access import Access, User
from txobserver.audited import AUDITED
from txobserver.events import Configure
from txobserver.ids import Member
from txobserver.rules import VHOST, Rule, Vhost

SECRET = "secret-of-ada"
DEFAULT = Rule(VHOST, "/", "/", "", Vhost())


class Node:
    """As much of a node as is asked. ``log``: what it tells of refused logins."""

    def __init__(self) -> None:
        self.access = Access(
            {"ada": User("ada", SECRET, ("administrator",)), "guest": User("guest", "guest")}, "", 1, 1
        )
        self.log: list[tuple[str, str, int, str]] = []
        self.access.rules = {DEFAULT.place: DEFAULT}
        self.record: Any = SimpleNamespace(
            membership=UNSET,
            ready=[Member("a", "1"), Member("b", "1")],
            primary=Member("a", "1"),
            cluster_id="i",
            generation=4,
        )
        self.core: Any = SimpleNamespace(
            member=Member("a", "1"),
            replica=SimpleNamespace(contents=SimpleNamespace(access=self.access)),
            settings=SimpleNamespace(calls_kept=2),
            founding=[SimpleNamespace(name=name) for name in "abc"],
            record=self.record,
            state="active",
            generation=4,
            waits_for_operator=None,
            features={"b": frozenset()},
            configure=self.configure,
        )
        self.logins = Logins(self, lambda *told: self.log.append(told))
        self.config: Any = SimpleNamespace(
            cluster="c",
            amqp=SimpleNamespace(addresses=[("127.0.0.1", 5672)]),
            listeners={"l": SimpleNamespace(port=5673)},
        )
        self.listeners: Any = SimpleNamespace(opened=["l"])

    def get(self, name: str, /) -> str | None:
        user = self.access.users.get(name)
        return None if user is None else user.hash

    def configure(self, step: Configure, done: Any) -> None:
        self.step = Configure(self.access.last + 1, step.operation, step.name, step.arguments)
        done(self.access.apply(self.step))

    def admin(self, logins: bool = True) -> DoorAdmin:
        shown = {"alarms": ["low on disk"], "memory": {"held": 3}}
        known = self.logins if logins else None
        told = {"b": ["low on memory"]}.get
        return DoorAdmin(self.config, self.core, Readiness(3, 2), self.listeners, known, lambda: shown, told)

    async def ask(self, command: str, **arguments: Any) -> Any:
        changes = AuditedChanges(self.core, lambda call: call(), self.logins)
        handlers = {**self.admin().handlers, **UserAdmin(changes).handlers, **RuleAdmin(changes).handlers}
        return await handlers[command](arguments)


@pytest.fixture
def node() -> Node:
    return Node()


async def test_a_login_tells_tags_and_a_wrong_one_how_long_to_wait(node: Node) -> None:
    right = {"right": True, "tags": ["administrator"], "number": 0, "delay": 0.0, "local": True}
    assert await node.ask("door.login", name="ada", password=SECRET, address="10.0.0.1") == right
    delays = [
        (await node.ask("door.login", name="ada", password="wrong", address="10.0.0.1"))["delay"]
        for _ in range(FREE + 3)
    ]
    assert delays == [0.0] * FREE + [0.5, 1.0, 2.0]
    assert await node.ask("door.login", name="ada", password=SECRET, address="10.0.0.1") == right
    assert node.log[0] == ("ada", "10.0.0.1", 1, "the user or the password is wrong")
    assert SECRET not in str(node.log)


class Silent:
    """PasswordChecks that never come to it. ``wanted``: whether the verdict still is."""

    def __init__(self) -> None:
        self.wanted: list[Any] = []

    def check(self, kept: Any, credentials: Any, address: str, then: Any, wanted: Any) -> None:
        self.wanted.append(wanted)


@pytest.mark.parametrize("command", ["door.login", "users.authenticate"])
async def test_a_verdict_that_does_not_come_in_time_is_no_fault_of_the_node(
    command: str, node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a take-over all clients log in at once: an operator had waited so long that the node ended. Nobody verifies
    what nobody waits for."""
    monkeypatch.setattr(verdicts, "VERDICT_SECONDS", 0.01)
    checks = Silent()
    node.logins = Logins(node, checks=checks)
    with pytest.raises(CommandRefused, match="passwords of many logins are being verified; try again"):
        await node.ask(command, name="ada", password=SECRET, address="10.0.0.1")
    assert [wanted() for wanted in checks.wanted] == [False]


async def test_a_login_of_whom_the_stream_does_not_hold_has_no_tags(node: Node) -> None:
    """The node's own configuration lets in until the cluster keeps users; a user may have been deleted just now."""
    del node.access.users["ada"]
    node.logins = Logins({"ada": SECRET})
    found = await node.ask("door.login", name="ada", password=SECRET, address="10.0.0.1")
    assert found["right"] and found["tags"] == []


@pytest.mark.parametrize(
    "command", ["users.add", "users.put", "users.delete", "users.passwd", "users.set_tags", "rules.set", "rules.clear"]
)
async def test_nothing_is_changed_before_the_cluster_keeps_users(command: str, node: Node) -> None:
    """A change would be the first, and none could be taken over any more: all users would be locked out."""
    node.access.events = 0
    node.step = None
    given = {**PERMISSION, "hash": f"rabbit_password_hashing_sha256${base64.b64encode(bytes(36)).decode()}"}
    with pytest.raises(CommandRefused, match="the cluster keeps no users yet"):
        await node.ask(command, **given)
    assert node.step is None


async def test_a_node_that_the_record_has_put_out_is_not_ready(node: Node) -> None:
    node.core.state = "ready"
    assert (await node.ask("door.health"))["ready"]
    node.record.ready = [Member("b", "1")]
    assert not (await node.ask("door.health"))["ready"]


async def test_changes_of_one_user_are_listed_alone(node: Node) -> None:
    for user in ("ada", "bob"):
        await node.ask("users.set_tags", name="ada", tags=[user], by={"user": user, "address": "10.0.0.1"})
    assert [each["user"] for each in await node.ask("changes.list", by="bob")] == ["bob"]
    assert [each["user"] for each in await node.ask("changes.list")] == ["ada", "bob"]


async def test_guest_comes_from_loopback_only(node: Node) -> None:
    assert (await node.ask("door.login", name="guest", password="guest", address="127.0.0.1"))["right"]
    found = await node.ask("door.login", name="guest", password="guest", address="10.0.0.1")
    assert not found["right"] and not found["local"]


@pytest.mark.parametrize("given", [{}, {"name": 1, "password": "", "address": ""}, {"name": "a", "password": "b"}])
async def test_what_is_no_login_is_refused(given: dict[str, Any], node: Node) -> None:
    with pytest.raises(CommandRefused, match="a login has name, password and address"):
        await node.ask("door.login", **given)


async def test_a_host_broker_has_users_of_its_own(node: Node) -> None:
    with pytest.raises(CommandRefused, match="users of its own"):
        await node.admin(logins=False).handlers["door.login"]({"name": "a", "password": "b", "address": "c"})


async def test_a_change_says_whose_it_is_and_shows_no_secret(node: Node) -> None:
    by, kept = {"user": "ada", "address": "10.0.0.1"}, f"rabbit_password_hashing_sha256${'A' * 48}"
    assert (await node.ask("users.put", name="eve", hash=kept, tags=["x"], by=by))["added"]
    assert node.step.operation == AUDITED
    assert not (await node.ask("users.put", name="eve", hash=kept, tags=["y"], by=by))["added"]
    assert [(each["before"], each["after"]) for each in await node.ask("changes.list", by="ada")] == [
        (None, '{"tags":["x"],"password":"set"}'),
        ('{"tags":["x"]}', '{"tags":["y"],"password":"set"}'),
    ]
    await node.ask("users.delete", name="eve")
    with pytest.raises(CommandRefused, match="there is no user 'eve'"):
        await node.ask("users.delete", name="eve", by=by)
    last = await node.ask("changes.list")
    assert [(each["user"], each["address"], each["result"]) for each in last] == [
        ("", "", "done"),
        ("ada", "10.0.0.1", "gone"),
    ], "calls_kept is 2"
    assert {each["operation"] for each in last} == {"user.delete"} and last[0]["node"] == "a"
    assert last[0]["created_at"].endswith("+00:00") and "A" * 48 not in str(node.access.changes)


@pytest.mark.parametrize(
    "by", [None, {}, {"user": "a"}, {"user": "a", "address": 1}, {"user": "a" * 513, "address": ""}]
)
async def test_who_asks_cannot_be_left_in_the_dark(by: Any, node: Node) -> None:
    with pytest.raises(CommandRefused, match="user and address"):
        await node.ask("users.delete", name="ada", by=by)


async def test_health_in_few_numbers(node: Node) -> None:
    found = await node.ask("door.health")
    assert found["ready"] and found["ready_set"] == ["a", "b"] and found["amqp_ports"] == [5672, 5673]
    assert "2 of 3 nodes are ready" in found["shortage"] and found["alarms"] == ["low on disk"]
    assert found["others_alarms"] == {"b": ["low on memory"], "c": None}
    node.core.state = "catchup"
    found = await node.ask("door.health")
    assert not found["ready"] and found["shortage"] is None
    node.core.record = None
    assert (await node.ask("door.health"))["ready_set"] == []


async def test_nodes(node: Node) -> None:
    found = await node.ask("door.nodes")
    assert found["alarms"] == ["low on disk"] and found["others_alarms"] == {"b": ["low on memory"], "c": None}
    assert found["others"] == {"b": True, "c": False} and found["memory"] == {"held": 3} and found["uptime"] >= 0


PERMISSION = {"kind": "permission", "vhost": "/", "name": "ada", "configure": "c", "write": "w", "read": "r"}
TOPIC = {"kind": "topic_permission", "vhost": "/", "name": "ada", "scope": "amq.topic", "write": "w", "read": "r"}
POLICY = {"kind": "policy", "vhost": "/", "name": "p", "pattern": "", "definition": {"alternate-exchange": "a"}}
LIMIT = {"kind": "user_limit", "vhost": "", "name": "ada", "scope": "max-channels", "most": 3}


async def test_rules_are_set_listed_and_cleared(node: Node) -> None:
    for rule in (PERMISSION, TOPIC, LIMIT):
        shown = {"scope": "", **rule}
        assert await node.ask("rules.set", **rule) == shown | {"added": True}
        assert await node.ask("rules.set", **rule) == shown | {"added": False}
        assert await node.ask("rules.list", kinds=[rule["kind"]]) == [shown]
    assert (await node.ask("users.list"))[0]["limits"] == {"max-channels": 3}
    assert len(await node.ask("rules.list", kinds=["permission", "topic_permission"])) == 2
    for rule in (PERMISSION, TOPIC, LIMIT):
        place = {key: value for key, value in rule.items() if key in ("kind", "vhost", "name", "scope")}
        assert await node.ask("rules.clear", **place) == {"scope": "", **rule}
        said = "there is no .* of 'ada'" + (f" for '{rule['scope']}'" if "scope" in rule else "")
        with pytest.raises(CommandRefused, match=f"^{said}$"):
            await node.ask("rules.clear", **place)
    assert list(node.access.rules.values()) == [DEFAULT]


async def test_a_rule_says_whose_change_it_is(node: Node) -> None:
    await node.ask("rules.set", **PERMISSION, by={"user": "ada", "address": "10.0.0.1"})
    (change,) = await node.ask("changes.list", by="ada")
    assert (change["operation"], change["name"], change["before"]) == ("permission.set", "ada", None)
    assert change["after"] == '{"vhost":"/","configure":"c","write":"w","read":"r"}'


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (PERMISSION | {"name": "eve"}, "^there is no user 'eve'; see `txha users list`$"),
        (PERMISSION | {"vhost": "x"}, "^there is no virtual host 'x'; see `txha vhosts list`$"),
        (PERMISSION | {"read": "("}, r"^read: '\(' is no pattern that can be matched here: missing \)"),
        (PERMISSION | {"read": 1}, "^read is a text"),
        (PERMISSION | {"read": "x" * 1025}, "a pattern has at most 1024 characters"),
        (PERMISSION | {"name": ""}, "^the name must be a text that is not empty$"),
        (PERMISSION | {"name": "a\0b"}, "a name with a zero in it"),
        (PERMISSION | {"scope": "x"}, "a permission of 'x'"),
        (PERMISSION | {"vhost": 1}, "^vhost and scope are texts$"),
        (PERMISSION | {"kind": "x"}, "^a kind is one of permission, .*, vhost, policy, operator_policy$"),
        (LIMIT | {"most": "3"}, "^a limit is a whole number from 0 to 2147483647, or -1 for none$"),
        (LIMIT | {"most": True}, "^a limit is a whole number from 0 to 2147483647, or -1 for none$"),
        (LIMIT | {"most": -2}, "^a limit is a whole number from 0"),
        (LIMIT | {"most": 2**31}, "^a limit is a whole number from 0"),
        (LIMIT | {"scope": "x"}, "there is no limit 'x'"),
        (LIMIT | {"most": 2**70}, "^a limit is a whole number from 0"),
        (POLICY | {"priority": 2**31}, "^a priority is a whole number from -2147483647 to 2147483647$"),
        (POLICY | {"priority": -(2**70)}, "^a priority is a whole number from -2147483647"),
    ],
)
async def test_a_rule_that_cannot_be_is_refused_in_a_sentence(given: dict[str, Any], said: str, node: Node) -> None:
    with pytest.raises(CommandRefused, match=said):
        await node.ask("rules.set", **given)
    assert list(node.access.rules.values()) == [DEFAULT]


@pytest.mark.parametrize("kinds", [None, "permission", ["x"], [1]])
async def test_kinds_that_are_none(kinds: Any, node: Node) -> None:
    with pytest.raises(CommandRefused, match="kinds are a list of"):
        await node.ask("rules.list", kinds=kinds)


async def test_virtual_hosts_are_added_changed_and_deleted(node: Node) -> None:
    added = {"kind": "vhost", "vhost": "v", "name": "v", "description": "d", "tags": ["b", "a", "a"]}
    shown = {"kind": "vhost", "vhost": "v", "name": "v", "scope": "", "description": "d", "tags": ("a", "b")}
    assert await node.ask("rules.set", **added) == {**shown, "going": False, "added": True}
    assert not (await node.ask("rules.set", **added))["added"]
    for wrong in ({"description": 1}, {"tags": "a"}, {"tags": [1]}):
        with pytest.raises(CommandRefused, match="a description is a text, and tags are a list of texts"):
            await node.ask("rules.set", **(added | wrong))
    await node.ask("rules.clear", kind="vhost", vhost="v", name="v")
    assert (await node.ask("rules.list", kinds=["vhost"]))[1]["going"]
    with pytest.raises(CommandRefused, match="there is no virtual host 'v', or it is being deleted"):
        await node.ask("rules.clear", kind="vhost", vhost="v", name="v")
    with pytest.raises(CommandRefused, match="virtual host 'v' is being deleted: add it when"):
        await node.ask("rules.set", **added)
    with pytest.raises(CommandRefused, match="the default virtual host cannot be deleted"):
        await node.ask("rules.clear", kind="vhost", vhost="/", name="/")


POLICY = {"kind": "policy", "vhost": "/", "name": "p", "pattern": "^e", "definition": {"alternate-exchange": "e"}}


async def test_a_policy_is_set_and_cleared(node: Node) -> None:
    assert (await node.ask("rules.set", **POLICY))["added"]
    assert not (await node.ask("rules.set", **POLICY, priority=-3))["added"]
    (shown,) = await node.ask("rules.list", kinds=["policy"])
    assert shown == POLICY | {"scope": "", "priority": -3, "apply_to": "all"}
    await node.ask("rules.clear", kind="policy", vhost="/", name="p")
    with pytest.raises(CommandRefused, match=r"^there is no policy 'p' in virtual host '/'$"):
        await node.ask("rules.clear", kind="policy", vhost="/", name="p")
    operators = POLICY | {"kind": "operator_policy", "definition": {"expires": 5}, "apply_to": "queues"}
    assert (await node.ask("rules.set", **operators))["added"]
    assert await node.ask("rules.list", kinds=["operator_policy"]) == [operators | {"scope": "", "priority": 0}]
    with pytest.raises(CommandRefused, match=r"^there is no policy 'p' in virtual host '/'$"):
        await node.ask("rules.clear", kind="policy", vhost="/", name="p")
    await node.ask("rules.clear", kind="operator_policy", vhost="/", name="p")
    with pytest.raises(CommandRefused, match=r"^there is no operator policy 'p' in virtual host '/'$"):
        await node.ask("rules.clear", kind="operator_policy", vhost="/", name="p")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"priority": "1"}, "^a priority is a whole number from"),
        ({"priority": True}, "^a priority is a whole number from"),
        ({"priority": 2**31}, "^a priority is a whole number from"),
        ({"pattern": "("}, "is no pattern"),
        ({"definition": None}, "^a definition is an object of JSON$"),
        ({"definition": {}}, "^a definition is an object with alternate-exchange or expires$"),
        ({"definition": {"message-ttl": 1}}, "^'message-ttl' would have no effect here: leave it out$"),
        ({"definition": {"expires": 2**32}}, "^expires is a whole number of milliseconds, from 1 to 4294967295$"),
        ({"apply_to": "queues"}, "^'alternate-exchange' says nothing of queues: give another apply-to, or leave it"),
        ({"apply_to": 3}, "^apply_to is one of all, exchanges, queues$"),
        ({"kind": "operator_policy"}, "^'alternate-exchange' would have no effect here: leave it out$"),
        ({"definition": {"alternate-exchange": 1}}, "^alternate-exchange is the name of an exchange$"),
        ({"vhost": "x"}, "^there is no virtual host 'x'"),
    ],
)
async def test_a_policy_that_cannot_be(given: dict[str, Any], said: str, node: Node) -> None:
    with pytest.raises(CommandRefused, match=said):
        await node.ask("rules.set", **(POLICY | given))
    assert list(node.access.rules.values()) == [DEFAULT]
