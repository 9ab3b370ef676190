"""``/api/definitions``: RabbitMQ's files at the door."""

from __future__ import annotations

import json
from typing import Any

import pytest
from starlette.testclient import TestClient

from broker_plugin.admin.server import CommandRefused
from broker_plugin.http.app import operators_app
from broker_plugin.http.asking import ANSWER_SECONDS
from broker_plugin.http.errors import bad_request
from broker_plugin.http.routes import definitions
from tests.broker_plugin.definitions.held import FILES, without_numbers
from tests.broker_plugin.definitions.held_node import HeldNode
from tests.broker_plugin.http.fake_node import FakeNode, basic, let_in

REAL = (FILES / "rabbitmq-3.10-http.json").read_bytes()
BY = {"user": "ada", "address": "127.0.0.1"}


class Node(FakeNode):
    """With definitions."""

    def __init__(self) -> None:
        super().__init__()
        self.node = HeldNode()
        self.logins: list[Any] = []

    async def ask(self, command: str, arguments: dict[str, Any] | None = None, seconds: float = ANSWER_SECONDS) -> Any:
        if not command.startswith("definitions."):
            return await super().ask(command, arguments, seconds)
        try:
            given = dict(arguments or {})
            self.logins.append(given.pop("login", None))
            return await self.node.handle(command, given)
        except CommandRefused as error:
            raise bad_request(str(error)) from None


@pytest.fixture
def node() -> Node:
    return Node()


@pytest.fixture
def client(node: Node) -> TestClient:
    app = operators_app(node)
    return TestClient(app, client=("127.0.0.1", 5000), headers=basic("ada"), raise_server_exceptions=False)


def test_a_file_is_imported_and_given_out(client: TestClient, node: Node) -> None:
    assert client.post("/api/definitions", content=REAL).status_code == 204
    assert node.node.asked[-1][1]["by"] == BY and node.logins[-1] == let_in("ada")
    given = client.get("/api/definitions")
    assert given.headers["content-type"] == "application/json"
    other = HeldNode()
    other.held.imported(given.content)
    assert without_numbers(other.held.state) == without_numbers(node.node.held.state)


def test_what_cannot_be_honoured_is_told_unless_the_rest_is_wanted(client: TestClient, node: Node) -> None:
    file = {"queues": [{"vhost": "/", "name": f"q{number}", "durable": number == 0} for number in range(13)]}
    answer = client.post("/api/definitions", json=file)
    assert answer.status_code == 400
    assert "queue 'q1': it is not durable" in answer.json()["reason"] and "and 2 more" in answer.json()["reason"]
    assert not node.node.held.contents.configuration.queues
    answer = client.post("/api/definitions?partial=true", json=file)
    assert answer.status_code == 200 and len(answer.json()["left_out"]) == 12
    assert answer.json()["left_out"][0]["entry"] == "queue 'q1'"
    assert list(node.node.held.contents.configuration.queues) == ["q0"]
    assert client.post("/api/definitions?partial=yes", json=file).status_code == 400
    assert client.post("/api/definitions?dry_run=true", json=file).status_code == 400


def test_those_of_one_virtual_host(client: TestClient, node: Node) -> None:
    client.post("/api/definitions", content=REAL)
    node.rules["vhost", "orders", "orders", ""] = next(iter(node.rules.values())) | {
        "vhost": "orders",
        "name": "orders",
    }
    given = client.get("/api/definitions/orders")
    assert "users" not in given.json() and given.json()["original_vhost_name"] == "orders"
    assert client.post("/api/definitions/%2F", content=given.content).status_code == 204
    assert "shop.paid" in node.node.held.contents.configuration.queues
    assert client.get("/api/definitions/absent").status_code == 404
    assert client.post("/api/definitions/absent", content=given.content).status_code == 404


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"\xff", json.dumps({"users": [{"name": 1}]}).encode()])
def test_what_is_no_file_is_refused(body: bytes, client: TestClient) -> None:
    answer = client.post("/api/definitions", content=body)
    assert (answer.status_code, answer.json()["error"]) == (400, "bad_request")
    assert "this is no file of definitions" in answer.json()["reason"]


def test_a_file_is_taken_within_bounds(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(definitions, "MOST_BODY", 100)
    assert client.post("/api/definitions", content=b" " * 101).status_code == 413


@pytest.mark.parametrize("user", ["mon", "pol", "man", "none"])
@pytest.mark.parametrize("path", ["/api/definitions", "/api/definitions/%2F"])
def test_hashes_are_for_administrators(user: str, path: str, client: TestClient, node: Node) -> None:
    assert client.get(path, headers=basic(user)).status_code == 401
    assert client.post(path, headers=basic(user), content=REAL).status_code == 401
    assert not node.node.asked
