"""What the door answers, by a node that is none: users, health, txha's own; and input that is wrong."""

from __future__ import annotations

import base64
import logging
from typing import Any

import pytest
from starlette.testclient import TestClient

from broker_plugin.amqp.protocol.passwords import is_current, matches
from broker_plugin.http.app import operators_app
from broker_plugin.http.reading import MOST_BODY
from tests.broker_plugin.http.fake_node import FakeNode, basic, let_in

GONE = {"error": "Object Not Found", "reason": "Not Found"}
CHECKS = "/api/health/checks"


@pytest.fixture
def node() -> FakeNode:
    return FakeNode()


@pytest.fixture
def client(node: FakeNode) -> TestClient:
    app = operators_app(node)
    return TestClient(app, client=("127.0.0.1", 5000), headers=basic("ada"), raise_server_exceptions=False)


# -- users


def test_users_are_listed_and_shown(client: TestClient) -> None:
    listed = client.get("/api/users").json()
    assert {"name": "ada", "tags": ["administrator"], "limits": {}} in listed
    assert client.get("/api/users/mon").json() == {"name": "mon", "tags": ["monitoring"], "limits": {}}
    answer = client.get("/api/users/who")
    assert (answer.status_code, answer.json()) == (404, GONE)


@pytest.mark.parametrize("tags", ["a, b", ["a", "b"]])
def test_a_user_is_added_then_changed(tags: object, client: TestClient, node: FakeNode) -> None:
    body = {"password": "correct-horse", "tags": tags, "name": "new", "vhost": "/"}
    assert client.put("/api/users/new", json=body).status_code == 201
    assert client.put("/api/users/new", json=body).status_code == 204
    for given in node.given("users.put"):
        assert given["tags"] == ["a", "b"] and given["by"] == {"user": "ada", "address": "127.0.0.1"}
        assert is_current(given["hash"]) and matches(given["hash"], "correct-horse")
    assert "correct-horse" not in str([each for each in node.asked if each[0] != "door.login"])


def test_a_hash_of_rabbitmq_s_is_taken(client: TestClient, node: FakeNode) -> None:
    hashed = base64.b64encode(b"salt" + bytes(32)).decode()
    assert client.put("/api/users/new", json={"password_hash": hashed, "tags": ""}).status_code == 201
    assert node.given("users.put")[0]["hash"] == f"rabbit_password_hashing_sha256${hashed}"


def test_a_user_is_deleted_by_who_asks(client: TestClient, node: FakeNode) -> None:
    assert client.delete("/api/users/mon").status_code == 204
    by = {"user": "ada", "address": "127.0.0.1"}
    assert node.given("users.delete") == [{"name": "mon", "by": by, "login": let_in("ada")}]
    assert client.delete("/api/users/mon").json() == GONE


def test_a_name_has_a_length_in_bytes(client: TestClient, node: FakeNode) -> None:
    body = {"tags": "", "password": "x"}
    assert client.put("/api/users/" + "%C3%A9" * 127, json=body).status_code == 201
    answer = client.put("/api/users/" + "%C3%A9" * 128, json=body)
    assert answer.status_code == 400 and answer.json()["reason"] == "a user's name has at most 255 bytes"


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ({"password": "x"}, "tags_not_present"),
        ({"tags": "a"}, "password or password_hash must be a text that is not empty: no user is without a password"),
        ({"tags": "a", "password": ""}, "no user is without a password"),
        ({"tags": "a", "password": 7}, "no user is without a password"),
        ({"tags": "a", "password": "x", "password_hash": "y"}, "both_password_and_password_hash_are_provided"),
        ({"tags": "a", "password_hash": "y"}, "no hash of a kind that is known"),
        ({"tags": [1], "password": "x"}, "tags are a list of texts"),
        ({"tags": ["t"] * 65, "password": "x"}, "at most 64 tags"),
        ({"tags": ["é" * 128], "password": "x"}, "at most 255 bytes"),
        ({"tags": "a", "password": "x", "pasword": "y"}, "a user has no 'pasword'"),
    ],
)
def test_a_user_that_cannot_be(body: dict[str, Any], reason: str, client: TestClient, node: FakeNode) -> None:
    answer = client.put("/api/users/new", json=body)
    assert (answer.status_code, answer.json()["error"]) == (400, "bad_request")
    assert reason in answer.json()["reason"] and not node.given("users.put")


# -- wrong input


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", "not_json"),
        (b"\xff\xfe", "not_json"),
        (b'{"tags": "\xc3\x28"}', "not_json"),
        (b'{"tags": "\\ud800", "password": "x"}', None),
        (b"[" * 100_000, "not_json"),
        (b'{"a":' * 50_000, "not_json"),
        (b"[1]", "body_not_json_object"),
        (b"null", "body_not_json_object"),
        (b'{"tags": NaN}', "not_json"),
    ],
)
def test_a_body_that_is_no_object(body: bytes, reason: str | None, client: TestClient, node: FakeNode) -> None:
    answer = client.put("/api/users/new", content=body)
    assert answer.status_code == 400 and not node.given("users.put")
    assert reason is None or answer.json() == {"error": "bad_request", "reason": reason}
    assert client.get("/api/whoami").status_code == 200


def test_a_body_that_is_too_long_is_not_read(client: TestClient, node: FakeNode) -> None:
    pieces = 0

    def endless() -> Any:
        nonlocal pieces
        for _ in range(1000):
            pieces += 1
            yield b"x" * MOST_BODY

    for content in (b"x" * (MOST_BODY + 1), endless()):
        answer = client.put("/api/users/new", content=content)
        assert (answer.status_code, answer.headers["connection"]) == (413, "close")
    assert not node.given("users.put")


@pytest.mark.parametrize(
    "path",
    [
        "/", "//api/whoami", "/api", "/api/", "/api/whoami/", "/api/vhost", "/api/permission", "/api/policy",
        "/api/users/a/b", "/api/users/..", "/api/users/%2e%2e/%2e%2e/etc/passwd", "/api/%75sers", "/api/users%2Fada",
        "/api/users/ada%00", "/api/users/ADA", "/etc/passwd", "/api/txha/calls/..%2f..",
    ],
)  # fmt: skip
def test_paths_that_lead_nowhere(path: str, client: TestClient) -> None:
    answer = client.request("GET", f"http://testserver{path}")
    assert (answer.status_code, answer.json()) == (404, GONE)


def test_a_name_may_hold_a_slash_and_must_be_utf_8(client: TestClient, node: FakeNode) -> None:
    node.users["a/b é"] = []
    assert client.get("/api/users/a%2Fb%20%C3%A9").json()["name"] == "a/b é"
    answer = client.get("/api/users/%ff")
    assert (answer.status_code, answer.json()["reason"]) == (400, "a name in the path is not UTF-8")


@pytest.mark.parametrize("method", ["POST", "PATCH", "PUT", "DELETE"])
def test_a_method_that_there_is_not(method: str, client: TestClient) -> None:
    answer = client.request(method, "/api/whoami")
    assert (answer.status_code, answer.json()["error"]) == (405, "Method Not Allowed")


def test_a_fault_of_ours_tells_nothing_of_what_was_sent(
    client: TestClient, node: FakeNode, caplog: pytest.LogCaptureFixture
) -> None:
    node.answers["calls.list"] = {object()}  # cannot be said in JSON
    with caplog.at_level(logging.DEBUG):
        answer = client.get("/api/txha/calls")
    assert (answer.status_code, answer.json()["error"]) == (500, "internal_error")
    assert "TypeError at" in caplog.text and "secret-of-ada" not in caplog.text


# -- health


def test_live_and_ready_want_no_login(node: FakeNode) -> None:
    stranger = TestClient(operators_app(node))
    assert stranger.get("/health/live").json() == stranger.get("/health/ready").json() == {"status": "ok"}
    node.health["ready"] = False
    assert stranger.get("/health/live").status_code == 200
    assert stranger.get("/health/ready").json() == {"status": "failed", "reason": "the node is not ready"}
    node.down = True
    assert stranger.get("/health/live").status_code == stranger.get("/health/ready").status_code == 503


@pytest.mark.parametrize(
    ("check", "change", "failed"),
    [
        ("local-alarms", {"alarms": ["low on memory"]}, {"alarms": [{"node": "node-1", "resource": "memory"}]}),
        ("alarms", {"alarms": ["low on disk"]}, {"alarms": [{"node": "node-1", "resource": "disk"}]}),
        ("node-is-quorum-critical", {"ready_set": ["node-1", "node-2"]}, {"ready": ["node-2"]}),
        ("port-listener/5672", {"amqp_ports": [5673]}, {"missing": 5672, "ports": [5673]}),
        ("virtual-hosts", {"ready": False}, {"virtual-hosts": ["/"]}),
    ],
)
def test_rabbitmq_s_checks(
    check: str, change: dict[str, Any], failed: dict[str, Any], client: TestClient, node: FakeNode
) -> None:
    assert client.get(f"{CHECKS}/{check}").json()["status"] == "ok"
    node.health |= change
    answer = client.get(f"{CHECKS}/{check}")
    assert answer.status_code == 503 and answer.json()["status"] == "failed" and answer.json()["reason"]
    assert {key: answer.json()[key] for key in failed} == failed


def test_alarms_of_the_cluster_as_rabbitmq_3_10_says_them(client: TestClient, node: FakeNode) -> None:
    """And beside that, of which nodes nothing is known: they do not count, as RabbitMQ asks those only that run."""
    assert client.get(f"{CHECKS}/alarms").json() == {"status": "ok"}
    node.health |= {"alarms": [], "others_alarms": {"node-3": None, "node-2": ["low on memory", "low on disk"]}}
    answer = client.get(f"{CHECKS}/alarms")
    assert (answer.status_code, answer.json()) == (
        503,
        {
            "status": "failed",
            "reason": "There are alarms in effect in the cluster",
            "alarms": [{"node": "node-2", "resource": "memory"}, {"node": "node-2", "resource": "disk"}],
            "not_known": ["node-3"],
        },
    )
    assert client.get(f"{CHECKS}/local-alarms").json() == {"status": "ok"}, "they are not this node's"
    node.health["others_alarms"] = {"node-2": [], "node-3": None}
    answer = client.get(f"{CHECKS}/alarms")
    assert (answer.status_code, answer.json()) == (200, {"status": "ok", "not_known": ["node-3"]})
    node.health["alarms"] = ["low on memory"]
    found = client.get(f"{CHECKS}/local-alarms").json()
    alarms = [{"node": "node-1", "resource": "memory"}]
    assert found == {"status": "failed", "reason": "There are alarms in effect on the node", "alarms": alarms}


def test_a_node_outside_the_ready_set_is_not_critical(client: TestClient, node: FakeNode) -> None:
    node.health["ready_set"] = ["node-2", "node-3"]
    assert client.get(f"{CHECKS}/node-is-quorum-critical").status_code == 200


@pytest.mark.parametrize(("port", "status"), [("0", 400), ("x", 400), ("65536", 400), ("9" * 5000, 400), ("٣", 400)])
def test_a_port_that_is_none(port: str, status: int, client: TestClient) -> None:
    assert client.get(f"{CHECKS}/port-listener/{port}").status_code == status


def test_protocols(client: TestClient) -> None:
    assert client.get(f"{CHECKS}/protocol-listener/amqp").status_code == 200
    assert client.get(f"{CHECKS}/protocol-listener/mqtt").status_code == 503


def test_nodes_with_the_alarms_that_are_known(client: TestClient, node: FakeNode) -> None:
    node.answers["door.nodes"] = {
        "name": "node-2", "pid": 7, "uptime": 1.5, "alarms": ["low on memory"], "memory": {}, "disk": {}, "clients": {},
        "others": {"node-3": False, "node-1": True}, "others_alarms": {"node-3": None, "node-1": ["low on disk"]},
    }  # fmt: skip
    first, own, last = client.get("/api/nodes").json()
    assert first == {
        "name": "node-1", "type": "disc", "running": True, "mem_alarm": False, "disk_free_alarm": True
    }  # fmt: skip
    assert own["mem_alarm"] and not own["disk_free_alarm"] and own["running"]
    assert last == {"name": "node-3", "type": "disc", "running": False}
    assert client.get("/api/nodes/node-1").json() == first


# -- txha's own


def test_the_ready_set(client: TestClient) -> None:
    found = client.get("/api/txha/ready-set").json()
    assert found["ready_set"] == ["node-1", "node-2", "node-3"] and found["min_ready"] == 2


def test_changes_are_asked_for_by_user(client: TestClient, node: FakeNode) -> None:
    client.get("/api/txha/changes?by=ada")
    client.get("/api/txha/changes")
    assert node.given("changes.list") == [{"by": "ada"}, {}]
