"""NodeClient: what the door asks over the port of the node's administration, and what it makes of a refusal."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from broker_plugin.admin.server import MAX_CONNECTIONS, AdminServer, CommandRefused, Handler
from broker_plugin.amqp.protocol.passwords import RABBITMQ_SHA256
from broker_plugin.http.asking import CHANGES, MOST_CHANGES, MOST_HEALTH, MOST_LOGINS, MOST_READ, NodeClient
from broker_plugin.http.errors import HttpError
from ha.refusals import NO_PRIMARY, NOT_ACTIVE, OUTCOME_UNKNOWN
from recovery.reader.node_admin import LONGEST_LINE, MAX_LINE
from tests.broker_plugin.definitions.held_node import HeldNode
from tests.support.guards import strict_guard
from txobserver.access import add_user_step, delete_user_step
from txobserver.rules import VHOST, Rule, Vhost, clear_rule_step, set_rule_step

HASH = f"{RABBITMQ_SHA256}${base64.b64encode(bytes(36)).decode()}"
BY = {"by": {"user": "ada", "address": "10.0.0.1"}}


class Held:
    """A node whose state changes between what the door looks at and what it asks for; some commands are not answered
    until ``answering``."""

    def __init__(self, directory: Path) -> None:
        self.node = HeldNode()
        self.answering = asyncio.Event()
        self.begun: list[str] = []
        self.directory = directory
        handlers = {"slow": self._held, "quick": self._quick, "door.health": self._quick, "cannot": self._cannot}
        held = {"door.login": self._held, **{command: self._change(command) for command in sorted(CHANGES)}}
        self.server = AdminServer(strict_guard(), directory, {**self.node.handlers, **handlers, **held})

    async def _held(self, arguments: dict[str, Any]) -> Any:
        self.begun.append(arguments["as"])
        await self.answering.wait()
        return arguments["as"]

    def _change(self, command: str) -> Handler:
        """One that the test names is held."""

        async def handle(arguments: dict[str, Any]) -> Any:
            return await (self._held if "as" in arguments else self.node.handlers[command])(arguments)

        return handle

    async def _quick(self, arguments: dict[str, Any]) -> Any:
        return "here"

    async def _cannot(self, arguments: dict[str, Any]) -> Any:
        raise CommandRefused("this node knows no primary at the moment; ask again")


@pytest.fixture
async def held(tmp_path: Path) -> AsyncIterator[Held]:
    held = Held(tmp_path)
    await held.server.start()
    yield held
    held.answering.set()
    await held.server.stop()


@pytest.fixture
def client(tmp_path: Path) -> NodeClient:
    return NodeClient(tmp_path)


async def refused(client: NodeClient, command: str, arguments: dict[str, Any]) -> HttpError:
    with pytest.raises(HttpError) as found:
        await client.ask(command, {**arguments, **BY})
    return found.value


async def test_a_user_that_has_gone_since_the_door_looked_is_not_found(held: Held, client: NodeClient) -> None:
    await client.ask("users.add", {"name": "bob", "hash": HASH, **BY})
    held.node.before = [delete_user_step("bob")]
    error = await refused(client, "users.delete", {"name": "bob"})
    assert (error.status, error.error) == (404, "Object Not Found") and "there is no user 'bob'" in error.reason


async def test_a_virtual_host_that_has_gone_since_the_door_looked_is_not_found(held: Held, client: NodeClient) -> None:
    for step in (add_user_step("bob", HASH), set_rule_step(Rule(VHOST, "v", "v", "", Vhost("", ())))):
        held.node.held.do(step)
    held.node.before = [clear_rule_step(VHOST, "v", "v", "")]
    permission = {"kind": "permission", "vhost": "v", "name": "bob", "configure": "", "write": "", "read": ""}
    error = await refused(client, "rules.set", permission)
    assert error.status == 404 and "there is no virtual host 'v'" in error.reason


async def test_a_virtual_host_that_is_being_deleted_is_the_requests_fault(held: Held, client: NodeClient) -> None:
    held.node.held.do(set_rule_step(Rule(VHOST, "v", "v", "", Vhost("", ()))))
    held.node.before = [clear_rule_step(VHOST, "v", "v", "")]
    error = await refused(client, "rules.set", {"kind": "vhost", "vhost": "v", "name": "v"})
    assert (error.status, error.error) == (400, "bad_request") and "is being deleted" in error.reason


async def test_what_the_node_cannot_do_now_is_unavailable(held: Held, client: NodeClient) -> None:
    error = await refused(client, "cannot", {})
    assert (error.status, error.reason) == (503, "this node knows no primary at the moment; ask again")


@pytest.mark.parametrize("said", [NO_PRIMARY, NOT_ACTIVE, OUTCOME_UNKNOWN])
async def test_an_outcome_that_is_not_known_is_no_fault_of_the_request(
    said: str, held: Held, client: NodeClient
) -> None:
    held.node.says = said
    error = await refused(client, "users.put", {"name": "bob", "hash": HASH})
    assert (error.status, error.reason) == (503, said)


async def test_logins_that_are_not_answered_hold_no_other_question(held: Held, client: NodeClient) -> None:
    logins = [asyncio.create_task(client.ask("door.login", {"as": str(n)})) for n in range(MOST_LOGINS + 3)]
    while len(held.begun) < MOST_LOGINS:
        await asyncio.sleep(0)
    assert await client.ask("quick") == "here"
    assert len(held.begun) == MOST_LOGINS, "no more are asked at a time"
    held.answering.set()
    assert await asyncio.gather(*logins) == [str(n) for n in range(MOST_LOGINS + 3)]


@pytest.mark.parametrize("answer", [b"{}\n", b"[]\n", b"7\n", b"x\n", b""])
async def test_an_answer_that_is_none_is_no_fault_of_the_door(answer: bytes, tmp_path: Path) -> None:
    async def strange(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        writer.write(answer)
        writer.close()

    server = await asyncio.start_server(strange, "127.0.0.1", 0)
    where = {"port": server.sockets[0].getsockname()[1], "token": "t"}
    (tmp_path / "admin.json").write_text(json.dumps(where))
    with pytest.raises(HttpError) as found:
        await NodeClient(tmp_path).ask("quick")
    assert (found.value.status, found.value.reason) == (503, "the node does not answer")
    server.close()


async def begun(held: Held, count: int) -> None:
    """So many questions have come to the node."""
    async with asyncio.timeout(10):
        while len(held.begun) < count:
            await asyncio.sleep(0)


async def test_questions_that_are_not_answered_hold_no_login(held: Held, client: NodeClient) -> None:
    slow = [asyncio.create_task(client.ask("slow", {"as": str(n)})) for n in range(MOST_READ + 3)]
    await begun(held, MOST_READ)
    login = asyncio.create_task(client.ask("door.login", {"as": "ada"}))
    await begun(held, MOST_READ + 1)
    assert held.begun[-1] == "ada"
    held.answering.set()
    assert await login == "ada"
    await asyncio.gather(*slow)


async def test_changes_that_wait_hold_neither_health_nor_reading_nor_logins(held: Held, client: NodeClient) -> None:
    """A healthy primary whose backups hang had been taken for a dead one."""
    commands = sorted(CHANGES)
    asked = [client.ask(commands[n % len(commands)], {"as": str(n)}) for n in range(20)]
    changes = [asyncio.create_task(each) for each in asked]
    await begun(held, MOST_CHANGES)
    login = asyncio.create_task(client.ask("door.login", {"as": "ada"}))
    await begun(held, MOST_CHANGES + 1)
    assert held.begun[-1] == "ada", "no more changes are asked at a time"
    for quick in ("door.health", "quick"):
        assert await client.ask(quick, {}, 5.0) == "here"
    held.answering.set()
    await asyncio.gather(login, *changes)


async def test_reading_that_takes_long_holds_no_health(held: Held, client: NodeClient) -> None:
    slow = [asyncio.create_task(client.ask("slow", {"as": str(n)})) for n in range(MOST_READ + 3)]
    await begun(held, MOST_READ)
    assert await client.ask("door.health", {}, 5.0) == "here"
    held.answering.set()
    await asyncio.gather(*slow)


def test_commands_have_room_beside_the_door() -> None:
    assert MOST_LOGINS + MOST_HEALTH + MOST_READ + MOST_CHANGES <= MAX_CONNECTIONS - 8


async def test_a_question_is_as_long_as_an_import_needs_and_no_longer(held: Held, client: NodeClient) -> None:
    for size in (MAX_LINE, 3 * MAX_LINE):
        assert await client.ask("quick", {"steps": "x" * size}) == "here"
    error = await refused(client, "quick", {"steps": "x" * LONGEST_LINE})
    assert (error.status, error.error) == (413, "bad_request") and "split it" in error.reason
    where = json.loads((held.directory / "admin.json").read_text())
    (held.directory / "admin.json").write_text(json.dumps({**where, "token": "none"}))
    error = await refused(client, "quick", {"steps": "x" * MAX_LINE})
    assert (error.status, error.reason) == (503, "the token is wrong")
