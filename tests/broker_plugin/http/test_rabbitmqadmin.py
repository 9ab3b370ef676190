"""RabbitMQ's own command line for operators, as its package has it, at our door."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path

from tests.broker_plugin.http.fake_node import PASSWORDS, FakeNode
from tests.broker_plugin.http.test_protocol import served

WHERE = "rabbitmq_server-*/plugins/rabbitmq_management-*/priv/www/cli/rabbitmqadmin"


async def rabbitmqadmin(port: int, *words: str, user: str = "ada", password: str = "") -> str:
    (command,) = Path("/usr/lib/rabbitmq/lib").glob(WHERE)
    login = ("-H", "127.0.0.1", "-P", str(port), "-u", user, "-p", password or PASSWORDS[user])
    line = [sys.executable, str(command), *login, *words]
    done = await asyncio.to_thread(subprocess.run, line, capture_output=True, text=True, timeout=60, check=False)
    return done.stdout + done.stderr


async def test_users_by_rabbitmqadmin() -> None:
    node = FakeNode()
    async with served(node) as (port, _):
        given = ("name=eve", "password=correct-horse", "tags=monitoring,policymaker")
        await rabbitmqadmin(port, "declare", "user", *given)
        assert node.users["eve"] == ["monitoring", "policymaker"]
        listed = json.loads(await rabbitmqadmin(port, "-f", "raw_json", "list", "users"))
        assert {"name": "eve", "tags": ["monitoring", "policymaker"], "limits": {}} in listed
        await rabbitmqadmin(port, "delete", "user", "name=eve")
        assert "eve" not in node.users
        assert "Not found: /api/users/eve" in await rabbitmqadmin(port, "delete", "user", "name=eve")
        assert "Access refused" in await rabbitmqadmin(port, "list", "users", password="wrong")
        assert "Access refused" in await rabbitmqadmin(port, "list", "users", user="man")


async def test_permissions_by_rabbitmqadmin() -> None:
    node = FakeNode()
    async with served(node) as (port, _):
        given = ("vhost=/", "user=mon", "configure=c", "write=w", "read=r")
        await rabbitmqadmin(port, "declare", "permission", *given)
        shown = {"user": "mon", "vhost": "/", "configure": "c", "write": "w", "read": "r"}
        assert json.loads(await rabbitmqadmin(port, "-f", "raw_json", "list", "permissions")) == [shown]
        await rabbitmqadmin(port, "delete", "permission", "vhost=/", "user=mon")
        assert json.loads(await rabbitmqadmin(port, "-f", "raw_json", "list", "permissions")) == []


async def test_policies_and_operator_policies_by_rabbitmqadmin() -> None:
    async with served(FakeNode()) as (port, _):
        for kind, listing in (("policy", "policies"), ("operator_policy", "operator_policies")):
            given = ("name=p", "pattern=^q", 'definition={"expires":60000}', "priority=3", "apply-to=queues")
            said = await rabbitmqadmin(port, "declare", kind, *given)
            shown = {"vhost": "/", "name": "p", "pattern": "^q", "definition": {"expires": 60_000}, "priority": 3}
            listed = json.loads(await rabbitmqadmin(port, "-f", "raw_json", "list", listing))
            assert listed == [shown | {"apply-to": "queues"}], said
        for kind in ("policy", "operator_policy"):
            await rabbitmqadmin(port, "delete", kind, "name=p")
        for listing in ("policies", "operator_policies"):
            assert json.loads(await rabbitmqadmin(port, "-f", "raw_json", "list", listing)) == []
