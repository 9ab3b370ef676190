"""Who may do what: logins, tags, and what is told of a refusal."""

from __future__ import annotations

import asyncio
import base64
import time

import pytest
from starlette.requests import Request
from starlette.testclient import TestClient

from broker_plugin.http.app import operators_app
from broker_plugin.http.errors import HttpError
from broker_plugin.http.login import MOST_OF_A_NETWORK, DoorLogins, credentials_of
from tests.broker_plugin.http.fake_node import FakeNode, basic

ADMIN, MONITOR, ANY = {"ada"}, {"ada", "mon"}, {"ada", "mon", "pol", "man"}
PATHS = [
    ("/api/whoami", ANY),
    ("/api/users", ADMIN),
    ("/api/users/ada", ADMIN),
    ("/api/nodes", MONITOR),
    ("/api/txha/calls", MONITOR),
    ("/api/txha/nodes", MONITOR),
    ("/api/txha/ready-set", MONITOR),
    ("/api/txha/changes", ADMIN),
    ("/api/health/checks/local-alarms", ANY),
    ("/api/health/checks/alarms", ANY),
]


@pytest.fixture
def node() -> FakeNode:
    node = FakeNode()
    node.answers["door.nodes"] = {
        "name": "node-1", "pid": 7, "uptime": 1.5, "alarms": [], "memory": {}, "disk": {}, "clients": {},
        "others": {"node-2": True, "node-3": False}, "others_alarms": {"node-2": [], "node-3": None},
    }  # fmt: skip
    return node


@pytest.fixture
def client(node: FakeNode) -> TestClient:
    return TestClient(operators_app(node), client=("127.0.0.1", 5000))


@pytest.mark.parametrize(("path", "allowed"), PATHS)
def test_tags_allow_what_rabbitmq_s_do(path: str, allowed: set[str], client: TestClient) -> None:
    for user in ("ada", "mon", "pol", "man", "none"):
        answer = client.get(path, headers=basic(user))
        assert answer.status_code == (200 if user in allowed else 401), user
        if user not in allowed:
            assert answer.json()["error"] == "not_authorised"
    assert client.get(path, headers=basic("none")).json()["reason"] == "Not management user"


@pytest.mark.parametrize("path", [path for path, _ in PATHS])
def test_nothing_is_told_without_a_login(path: str, client: TestClient, node: FakeNode) -> None:
    refused = {"error": "not_authorized", "reason": "Not_Authorized"}
    for headers in ({}, basic("ada", "wrong"), basic("nobody-known", "x"), {"authorization": "Bearer x"}):
        answer = client.get(path, headers=headers)
        assert (answer.status_code, answer.json()) == (401, refused)
        assert answer.headers["www-authenticate"] == 'Basic realm="txha"'
    assert {command for command, _ in node.asked} == {"door.login"}


@pytest.mark.parametrize(
    "given", ["", "Basic", "Basic !!!", "Basic YQ==", "Basic OmE=", "Basic /////w==", "Basic " + "YTpi" * 3000]
)
def test_a_login_that_cannot_be_read_is_refused_unasked(given: str, client: TestClient, node: FakeNode) -> None:
    assert client.get("/api/whoami", headers={"authorization": given}).status_code == 401
    assert not node.asked


def test_guest_is_told_why(client: TestClient, node: FakeNode) -> None:
    elsewhere = TestClient(operators_app(node), client=("10.0.0.9", 5000))
    answer = elsewhere.get("/api/whoami", headers=basic("guest", "guest"))
    assert (answer.status_code, answer.json()["reason"]) == (401, "User can only log in via localhost")
    assert node.given("door.login")[-1]["address"] == "10.0.0.9"


def test_a_header_does_not_say_where_a_client_comes_from(client: TestClient, node: FakeNode) -> None:
    client.get("/api/whoami", headers=basic("ada") | {"x-forwarded-for": "10.9.9.9", "forwarded": "for=10.9.9.9"})
    assert node.given("door.login")[-1]["address"] == "127.0.0.1"


def test_a_refusal_waits_as_the_node_says(client: TestClient, node: FakeNode) -> None:
    node.delay = 0.2
    began = time.monotonic()
    assert client.get("/api/whoami", headers=basic("ada", "wrong")).status_code == 401
    assert time.monotonic() - began >= 0.2
    node.delay = 1e9  # a right login waits for nothing
    assert client.get("/api/whoami", headers=basic("ada")).json() == {"name": "ada", "tags": ["administrator"]}


@pytest.mark.parametrize(
    ("guessing", "other"), [(["10.0.0.1"], "10.0.0.2"), ([f"2001:db8::{n:x}" for n in range(1, 20)], "2001:db8:0:1::1")]
)
async def test_a_network_that_guesses_keeps_no_other_from_logging_in(guessing: list[str], other: str) -> None:
    """A host of IPv6 chooses among the addresses of its network."""

    class Slow(FakeNode):
        busy = most = 0

        async def ask(self, command: str, arguments: object = None, seconds: float = 0) -> object:
            assert isinstance(arguments, dict)
            if arguments["address"] in guessing:
                self.busy += 1
                self.most = max(self.most, self.busy)
                await release.wait()
                self.busy -= 1
            return {"right": False, "tags": [], "delay": 0.0, "local": True}

    release, node = asyncio.Event(), Slow()
    logins = DoorLogins(node)
    addresses = [guessing[each % len(guessing)] for each in range(20)]
    guesses = [asyncio.create_task(logins._verified("ada", "x", each)) for each in addresses]
    for _ in range(20):
        await asyncio.sleep(0)
    assert node.busy == MOST_OF_A_NETWORK
    assert not (await logins._verified("ada", "x", other))["right"]
    release.set()
    await asyncio.gather(*guesses)
    assert node.most == MOST_OF_A_NETWORK and not logins._lines


def test_a_node_that_does_not_answer_lets_none_in(client: TestClient, node: FakeNode) -> None:
    node.down = True
    answer = client.get("/api/whoami", headers=basic("ada"))
    assert (answer.status_code, answer.json()["error"]) == (503, "unavailable")
    assert isinstance(HttpError(1, "a", "b"), Exception)


def test_a_password_may_have_a_colon() -> None:
    scope = {"type": "http", "headers": [(b"authorization", b"Basic " + base64.b64encode(b"ada:a:b:"))]}
    assert credentials_of(Request(scope)) == ("ada", "a:b:")
