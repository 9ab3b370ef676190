"""A change of a user whom the HTTP door had let in: the node judges again, when the request has come whole."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from broker_plugin.admin.answers import LET_IN_NO_MORE
from broker_plugin.admin.server import CommandRefused
from broker_plugin.amqp.protocol.logins import Logins
from broker_plugin.amqp.protocol.passwords import new_hash
from tests.broker_plugin.amqp.protocol.test_passwords import of_rabbitmq
from tests.broker_plugin.node.door.test_admin import SECRET, Node
from txobserver.access import User

BY = {"user": "ada", "address": "10.0.0.1"}
ADA = User("ada", of_rabbitmq("sha256", SECRET), ("administrator",), 3)
OTHERS = {
    "deleted": None,
    "deleted and added anew": msgspec.structs.replace(ADA, number=4),
    "another password": msgspec.structs.replace(ADA, hash=of_rabbitmq("sha256", "another")),
    "fewer tags": msgspec.structs.replace(ADA, tags=()),
    "other tags": msgspec.structs.replace(ADA, tags=("administrator", "monitoring")),
}


class Held:
    """PasswordChecks that wait for the test."""

    def __init__(self) -> None:
        self.waiting: list[Callable[[], None]] = []

    def check(self, kept: Any, credentials: Any, address: str, then: Any, wanted: Any) -> None:
        self.waiting.append(lambda: then(True))


@pytest.fixture
async def node() -> Node:
    node = Node()
    node.step = None  # type: ignore[assignment]
    put(node, ADA)
    return node


def put(node: Node, user: User | None) -> None:
    node.access.users = {**node.access.users, "ada": user} if user is not None else {}


async def let_in(node: Node) -> dict[str, Any]:
    """What the door says of a login that it has let in."""
    found = await node.ask("door.login", name="ada", password=SECRET, address="10.0.0.1")
    assert found["right"]
    return {"password": SECRET, "number": found["number"], "tags": found["tags"]}


def change(node: Node, login: Any) -> Any:
    return node.ask("users.put", name="eve", hash=of_rabbitmq("sha256", "x"), tags=[], by=BY, login=login)


@pytest.mark.parametrize("other", OTHERS.values(), ids=list(OTHERS))
async def test_a_user_that_has_changed_since_its_request_was_let_in_changes_nothing(
    other: User | None, node: Node
) -> None:
    """A deleted administrator's request, whose body came slowly, had added another one."""
    login = await let_in(node)
    put(node, other)
    with pytest.raises(CommandRefused, match="the user has changed since this request was let in") as refused:
        await change(node, login)
    assert refused.value.refusal == LET_IN_NO_MORE and node.step is None
    assert node.log == [("ada", "10.0.0.1", 1, "the user has changed since its request was let in")]
    assert SECRET not in str(refused.value)


@pytest.mark.parametrize("other", OTHERS.values(), ids=list(OTHERS))
async def test_a_user_that_changes_while_it_is_judged_again_changes_nothing(other: User | None, node: Node) -> None:
    login = await let_in(node)
    checks = Held()
    node.logins = Logins(node, checks=checks)
    asked = asyncio.ensure_future(change(node, login))
    async with asyncio.timeout(10):
        while not checks.waiting:
            await asyncio.sleep(0)
    checks.waiting.pop()()
    put(node, other)
    if other is not None and other.hash != ADA.hash:  # verified anew, and it is wrong
        node.logins._checks = Logins(node)._checks
    with pytest.raises(CommandRefused):
        await asyncio.wait_for(asked, 10)
    assert node.step is None


async def test_a_user_whose_hash_was_made_anew_meanwhile_is_the_same(node: Node) -> None:
    """Its own login has done that."""
    login = await let_in(node)
    put(node, msgspec.structs.replace(ADA, hash=new_hash(SECRET, bytes(16))))
    assert (await change(node, login))["added"] and node.log == []


async def test_an_operator_at_the_machine_is_not_judged(node: Node) -> None:
    put(node, None)
    assert (await node.ask("users.put", name="eve", hash=of_rabbitmq("sha256", "x"), tags=[]))["added"]


@pytest.mark.parametrize("login", [None, {}, {"password": 1, "number": 3, "tags": []}, {"password": SECRET}])
async def test_a_login_that_is_none_changes_nothing(login: Any, node: Node) -> None:
    with pytest.raises(CommandRefused, match=r"^login says password, number and tags$"):
        await change(node, login)
    assert node.step is None
