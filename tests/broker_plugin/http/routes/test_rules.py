"""Permissions, topic permissions and limits at the door: RabbitMQ's paths, fields and refusals."""

from __future__ import annotations

from typing import Any

import pytest
from starlette.testclient import TestClient

from broker_plugin.http.app import operators_app
from tests.broker_plugin.http.fake_node import FakeNode, basic

BY = {"user": "ada", "address": "127.0.0.1"}
SOME = {"configure": "c", "write": "w", "read": "r"}


@pytest.fixture
def node() -> FakeNode:
    return FakeNode()


@pytest.fixture
def client(node: FakeNode) -> TestClient:
    app = operators_app(node)
    return TestClient(app, client=("127.0.0.1", 5000), headers=basic("ada"), raise_server_exceptions=False)


def test_a_permission_is_set_shown_and_cleared(client: TestClient, node: FakeNode) -> None:
    assert client.put("/api/permissions/%2F/mon", json=SOME).status_code == 201
    assert client.put("/api/permissions/%2F/mon", json=SOME | {"username": "mon", "vhost": "/"}).status_code == 204
    shown = {"user": "mon", "vhost": "/", **SOME}
    assert client.get("/api/permissions/%2F/mon").json() == shown
    for path in ("/api/permissions", "/api/users/mon/permissions", "/api/vhosts/%2F/permissions"):
        assert client.get(path).json() == [shown]
    assert client.get("/api/users/ada/permissions").json() == []
    assert client.delete("/api/permissions/%2F/mon").status_code == 204
    assert client.delete("/api/permissions/%2F/mon").status_code == 404
    assert client.get("/api/permissions/%2F/mon").status_code == 404
    assert all(given["by"] == BY for given in node.given("rules.set") + node.given("rules.clear"))


def test_topic_permissions_of_a_user_are_cleared_all_or_for_one_exchange(client: TestClient) -> None:
    for exchange in ("a", "b", "c/d"):
        body = {"exchange": exchange, "write": "w", "read": "r"}
        assert client.put("/api/topic-permissions/%2F/mon", json=body).status_code == 201
    shown = [{"user": "mon", "vhost": "/", "exchange": each, "write": "w", "read": "r"} for each in ("a", "b", "c/d")]
    for path in (
        "/api/topic-permissions",
        "/api/topic-permissions/%2F/mon",
        "/api/users/mon/topic-permissions",
        "/api/vhosts/%2F/topic-permissions",
    ):
        assert client.get(path).json() == shown
    assert client.delete("/api/topic-permissions/%2F/mon/c%2Fd").status_code == 204
    assert client.delete("/api/topic-permissions/%2F/mon/c%2Fd").status_code == 404
    assert client.get("/api/topic-permissions").json() == shown[:2]
    assert client.delete("/api/topic-permissions/%2F/mon").status_code == 204
    assert client.get("/api/topic-permissions").json() == []
    assert client.get("/api/topic-permissions/%2F/mon").status_code == 404


def test_limits_are_set_shown_and_taken_away(client: TestClient, node: FakeNode) -> None:
    for path, shown in (
        ("/api/user-limits/mon/max-channels", {"user": "mon", "value": {"max-channels": 5}}),
        ("/api/vhost-limits/%2F/max-queues", {"vhost": "/", "value": {"max-queues": 5}}),
    ):
        whole, one = path.rsplit("/", 2)[0], path.rsplit("/", 1)[0]
        assert client.put(path, json={"value": 7}).status_code == 204
        assert client.put(path, json={"value": 5}).status_code == 204
        assert client.get(whole).json() == client.get(one).json() == [shown]
        assert client.delete(path).status_code == 204
        assert client.delete(path).status_code == 204
        assert client.get(whole).json() == client.get(one).json() == []
    assert [rule["vhost"] for rule in node.given("rules.set")] == ["", "", "/", "/"]


@pytest.mark.parametrize(
    "path",
    [
        "/api/permissions/%2F/eve",
        "/api/permissions/x/mon",
        "/api/topic-permissions/%2F/eve",
        "/api/topic-permissions/x/mon",
        "/api/user-limits/eve/max-channels",
        "/api/vhost-limits/x/max-queues",
    ],
)
def test_a_user_or_virtual_host_that_is_not_there(path: str, client: TestClient, node: FakeNode) -> None:
    body: dict[str, Any] = SOME | {"value": 1} if "limits" in path else SOME
    body = body | {"exchange": "e"} if "topic" in path else body
    answer = client.put(path, json=body)
    if "permissions" in path:
        assert (answer.status_code, answer.json()["reason"]) == (400, "vhost_or_user_not_found")
    else:
        assert answer.status_code == 404
    assert client.delete(path).status_code == 404
    assert client.get(path if "permissions" in path else path.rsplit("/", 1)[0]).status_code == 404
    assert node.only_default()


@pytest.mark.parametrize(
    ("path", "body", "reason"),
    [
        ("permissions/%2F/mon", {"configure": "c", "write": "w"}, "read must be a text"),
        ("permissions/%2F/mon", SOME | {"write": 1}, "write must be a text"),
        ("permissions/%2F/mon", SOME | {"write": "("}, "write: '(' is no pattern that can be matched here: missing )"),
        ("permissions/%2F/mon", SOME | {"admin": "x"}, "a permission has no 'admin'"),
        ("permissions/%2F/mon", [], "body_not_json_object"),
        ("topic-permissions/%2F/mon", {"write": "w", "read": "r"}, "exchange must be a text"),
        ("topic-permissions/%2F/mon", {"exchange": "e", "read": "r"}, "write must be a text"),
        ("user-limits/mon/max-channels", {"value": "1"}, "value must be a whole number"),
        ("user-limits/mon/max-channels", {"value": True}, "value must be a whole number"),
        ("user-limits/mon/max-channels", {}, "value must be a whole number"),
        ("user-limits/mon/max-channels", {"value": -2}, "value must be a whole number"),
        ("user-limits/mon/max-queues", {"value": 1}, "there is no limit 'max-queues'"),
        ("vhost-limits/%2F/max-channels", {"value": 1}, "there is no limit 'max-channels'"),
    ],
)
def test_what_cannot_be_is_refused_with_a_reason(
    path: str, body: Any, reason: str, client: TestClient, node: FakeNode
) -> None:
    answer = client.put(f"/api/{path}", json=body)
    assert answer.status_code == 400 and answer.json()["error"] == "bad_request"
    assert answer.json()["reason"].startswith(reason)
    assert node.only_default()


@pytest.mark.parametrize("user", ["mon", "pol", "man", "none"])
def test_only_administrators_change_and_see_who_may_do_what(user: str, client: TestClient, node: FakeNode) -> None:
    limit = "/api/user-limits/mon/max-channels"
    for method, path in (("GET", "/api/permissions"), ("PUT", "/api/permissions/%2F/mon"), ("PUT", limit)):
        assert client.request(method, path, json=SOME, headers=basic(user)).status_code == 401
    assert node.only_default()


def test_a_virtual_host_is_added_shown_and_deleted(client: TestClient, node: FakeNode) -> None:
    assert client.put("/api/vhosts/a%2Fb").status_code == 201
    body = {"description": "d", "tags": "x, y", "name": "a/b", "tracing": False, "default_queue_type": "undefined"}
    assert client.put("/api/vhosts/a%2Fb", json=body).status_code == 204
    said = {"description": "d", "tags": ["x", "y"]}
    shown = {"name": "a/b", **said, "metadata": said, "tracing": False}
    assert client.get("/api/vhosts/a%2Fb").json() == shown
    assert client.put("/api/vhosts/a%2Fb").status_code == 204
    assert client.put("/api/vhosts/a%2Fb", json={"description": None}).status_code == 204
    assert client.get("/api/vhosts/a%2Fb").json() == shown, "what is not said stays"
    assert client.put("/api/permissions/a%2Fb/man", json=SOME).status_code == 201
    for user, seen in (("ada", ["/", "a/b"]), ("mon", ["/", "a/b"]), ("man", ["a/b"]), ("pol", [])):
        listed = client.get("/api/vhosts", headers=basic(user)).json()
        assert [each["name"] for each in listed] == seen
    assert client.get("/api/vhosts/%2F", headers=basic("man")).status_code == 401
    assert client.put("/api/vhost-limits/a%2Fb/max-queues", json={"value": 1}).status_code == 204
    assert client.delete("/api/vhosts/a%2Fb", headers=basic("mon")).status_code == 401
    assert client.delete("/api/vhosts/a%2Fb").status_code == 204
    assert client.delete("/api/vhosts/a%2Fb").status_code == 404


def test_a_virtual_host_that_is_being_deleted_is_shown_no_more(client: TestClient, node: FakeNode) -> None:
    client.put("/api/vhosts/v")
    next(rule for rule in node.rules.values() if rule["name"] == "v")["going"] = True
    assert [each["name"] for each in client.get("/api/vhosts").json()] == ["/"]
    assert client.get("/api/vhosts/v").status_code == client.get("/api/vhosts/v/permissions").status_code == 404


@pytest.mark.parametrize(
    ("path", "body", "reason"),
    [
        ("v", {"queues": 1}, "a virtual host has no 'queues'"),
        ("v", {"tracing": True}, "there is no tracing here"),
        ("v", {"default_queue_type": "quorum"}, "there is one kind of queue here"),
        ("v", {"description": 1}, "description must be a text"),
        ("v", {"tags": [1]}, "tags are a list of texts"),
        ("v", [], "body_not_json_object"),
        ("v%00w", {}, "a virtual host's name has 1 to 255 bytes"),
        ("v" * 256, {}, "a virtual host's name has 1 to 255 bytes"),
    ],
)
def test_a_virtual_host_that_cannot_be(path: str, body: Any, reason: str, client: TestClient, node: FakeNode) -> None:
    answer = client.put(f"/api/vhosts/{path}", json=body)
    assert answer.status_code == 400 and answer.json()["reason"].startswith(reason)
    assert node.only_default()
    answer = client.delete("/api/vhosts/%2F")
    assert (answer.status_code, answer.json()["reason"]) == (400, "the default virtual host cannot be deleted")


# -- policies

POLICY = {"pattern": "^e", "definition": {"alternate-exchange": "a"}, "priority": 2, "apply-to": "exchanges"}


def test_a_policy_is_set_shown_and_cleared(client: TestClient, node: FakeNode) -> None:
    assert client.put("/api/policies/%2F/p", json=POLICY).status_code == 201
    assert client.put("/api/policies/%2F/p", json=POLICY | {"name": "p", "vhost": "/"}).status_code == 204
    shown = {"vhost": "/", "name": "p", **POLICY}
    assert client.get("/api/policies/%2F/p").json() == shown
    assert client.get("/api/policies").json() == client.get("/api/policies/%2F").json() == [shown]
    assert client.delete("/api/policies/%2F/p").status_code == 204
    assert client.delete("/api/policies/%2F/p").status_code == client.get("/api/policies/%2F/p").status_code == 404
    assert client.put("/api/policies/x/p", json=POLICY).status_code == 404
    body = {"pattern": "", "definition": {"alternate-exchange": "a"}}
    assert client.put("/api/policies/%2F/q", json=body).status_code == 201
    assert client.get("/api/policies/%2F/q").json()["priority"] == 0


def test_a_policymaker_makes_policies_where_it_has_permissions(client: TestClient, node: FakeNode) -> None:
    client.put("/api/vhosts/v")
    client.put("/api/policies/v/hidden", json=POLICY)
    login = basic("pol")
    assert client.put("/api/policies/%2F/p", json=POLICY, headers=login).status_code == 401
    client.put("/api/permissions/%2F/pol", json=SOME)
    assert client.put("/api/policies/%2F/p", json=POLICY, headers=login).status_code == 201
    assert [each["name"] for each in client.get("/api/policies", headers=login).json()] == ["p"]
    for method, path in (("GET", "v"), ("GET", "v/hidden"), ("PUT", "v/p"), ("DELETE", "v/hidden")):
        assert client.request(method, f"/api/policies/{path}", json=POLICY, headers=login).status_code == 401
    for user in ("mon", "man", "none"):
        assert client.get("/api/policies", headers=basic(user)).status_code == 401


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"pattern": None}, "pattern must be a text"),
        ({"pattern": "["}, "pattern: '[' is no pattern that can be matched here"),
        ({"priority": "1"}, "priority must be a whole number"),
        ({"priority": 2**31}, "priority must be a whole number"),
        ({"definition": {}}, "a definition is an object with alternate-exchange"),
        ({"definition": []}, "definition must be an object"),
        ({"definition": {"max-length": 1}}, "'max-length' would have no effect here"),
        ({"definition": {"alternate-exchange": 1}}, "alternate-exchange is the name of an exchange"),
        ({"apply-to": "queues"}, "'alternate-exchange' says nothing of queues: give another apply-to"),
        ({"definition": {"expires": 1}}, "'expires' says nothing of exchanges: give another apply-to"),
        ({"apply-to": "streams"}, "apply-to is all or exchanges or queues"),
        ({"apply-to": 1}, "apply-to must be a text"),
        ({"apply-to": "all", "definition": {"expires": 0}}, "expires is a whole number of milliseconds"),
        ({"apply-to": "all", "definition": {"expires": True}}, "expires is a whole number of milliseconds"),
        ({"x": 1}, "a policy has no 'x'"),
    ],
)
def test_a_policy_that_cannot_be(given: dict[str, Any], reason: str, client: TestClient, node: FakeNode) -> None:
    answer = client.put("/api/policies/%2F/p", json=POLICY | given)
    assert answer.status_code == 400 and answer.json()["reason"].startswith(reason)
    assert node.only_default()


OPERATORS = {"pattern": "^q", "definition": {"expires": 60_000}, "priority": 1, "apply-to": "queues"}


def test_an_operator_policy_stands_beside_the_policies(client: TestClient) -> None:
    path = "/api/operator-policies/%2F/p"
    assert client.put("/api/policies/%2F/p", json=POLICY).status_code == 201
    assert [client.put(path, json=OPERATORS).status_code for _ in range(2)] == [201, 204]
    shown = {"vhost": "/", "name": "p", **OPERATORS}
    assert client.get(path).json() == shown
    assert client.get("/api/operator-policies").json() == client.get("/api/operator-policies/%2F").json() == [shown]
    assert client.get("/api/policies").json() == [{"vhost": "/", "name": "p", **POLICY}]
    assert [client.delete(path).status_code for _ in range(2)] == [204, 404] and client.get(path).status_code == 404
    assert client.get("/api/policies/%2F/p").status_code == 200
    assert client.put(path, json={"pattern": "", "definition": {"expires": 1}}).status_code == 201
    assert client.get(path).json()["apply-to"] == "all"


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"definition": {"max-length": 1}}, "'max-length' would have no effect here"),
        ({"definition": {"alternate-exchange": "e"}, "apply-to": "all"}, "'alternate-exchange' would have no effect"),
        ({"definition": {}}, "a definition is an object with expires"),
        ({"apply-to": "exchanges"}, "apply-to is all or queues"),
    ],
)
def test_an_operator_policy_that_cannot_be(given: dict[str, Any], reason: str, client: TestClient) -> None:
    answer = client.put("/api/operator-policies/%2F/p", json=OPERATORS | given)
    assert answer.status_code == 400 and answer.json()["reason"].startswith(reason)
    assert client.get("/api/operator-policies").json() == []


def test_limits_may_be_looked_at_where_the_user_has_something_to_do(client: TestClient) -> None:
    """As RabbitMQ shows them: those of all users, and of the virtual hosts that the user sees."""
    for vhost in ("v", "w"):
        assert client.put(f"/api/vhosts/{vhost}").status_code == 201
        assert client.put(f"/api/vhost-limits/{vhost}/max-queues", json={"value": 5}).status_code == 204
    client.put("/api/user-limits/mon/max-channels", json={"value": 3})
    client.put("/api/permissions/v/man", json=SOME)
    both = [{"vhost": vhost, "value": {"max-queues": 5}} for vhost in ("v", "w")]
    assert client.get("/api/vhost-limits", headers=basic("mon")).json() == both
    assert client.get("/api/vhost-limits", headers=basic("man")).json() == both[:1]
    assert client.get("/api/vhost-limits/v", headers=basic("man")).json() == both[:1]
    refused = client.get("/api/vhost-limits/w", headers=basic("man"))
    assert (refused.status_code, refused.json()["reason"]) == (401, "User not authorised to access virtual host")
    assert client.get("/api/vhost-limits/x", headers=basic("man")).status_code == 404
    of_users = client.get("/api/user-limits", headers=basic("man")).json()
    assert of_users == [{"user": "mon", "value": {"max-channels": 3}}]
    assert client.get("/api/user-limits/mon", headers=basic("none")).status_code == 401


@pytest.mark.parametrize("kind", ["permissions", "topic-permissions"])
def test_what_is_cleared_in_one_virtual_host_stays_in_the_others(client: TestClient, kind: str) -> None:
    client.put("/api/vhosts/other", json={})
    body = SOME if kind == "permissions" else {"exchange": "e", "write": "w", "read": "r"}
    for vhost in ("%2F", "other"):
        assert client.put(f"/api/{kind}/{vhost}/mon", json=body).status_code == 201
    assert client.delete(f"/api/{kind}/other/mon").status_code == 204
    assert [each["vhost"] for each in client.get(f"/api/{kind}").json()] == ["/"]
    assert client.get(f"/api/{kind}/%2F/mon").status_code == 200


def test_policies_of_one_name_in_two_virtual_hosts_are_two(client: TestClient) -> None:
    """Who may not see one of them neither sees nor deletes it by the name of the other."""
    client.put("/api/vhosts/v")
    for vhost, exchange in (("%2F", "a"), ("v", "b")):
        body = {"pattern": "^x", "definition": {"alternate-exchange": exchange}}
        assert client.put(f"/api/policies/{vhost}/p", json=body).status_code == 201
    for vhost, exchange in (("%2F", "a"), ("v", "b")):
        assert client.get(f"/api/policies/{vhost}/p").json()["definition"] == {"alternate-exchange": exchange}
        assert [each["definition"]["alternate-exchange"] for each in client.get(f"/api/policies/{vhost}").json()] == [
            exchange
        ]
    assert client.delete("/api/policies/v/p").status_code == 204
    assert client.delete("/api/policies/v/p").status_code == client.get("/api/policies/v/p").status_code == 404
    assert [each["vhost"] for each in client.get("/api/policies").json()] == ["/"]


@pytest.mark.parametrize("priority", [2**31, -(2**31), 2**70, -(2**70), 1.5, True, "1"])
def test_a_priority_that_cannot_be(priority: Any, client: TestClient, node: FakeNode) -> None:
    body = {"pattern": "", "definition": {"alternate-exchange": "a"}, "priority": priority}
    assert client.put("/api/policies/%2F/p", json=body).status_code == 400 and node.only_default()


def test_rabbitmqadmin_says_a_virtual_host_of_whatever_it_declares(client: TestClient) -> None:
    assert client.put("/api/vhosts/rv", json={"name": "rv", "vhost": "/", "tracing": False}).status_code == 201


def test_a_key_that_stands_twice_is_refused(client: TestClient, node: FakeNode) -> None:
    for path, key in (("vhosts/v", "description"), ("users/u", "tags")):
        answer = client.put(f"/api/{path}", content=f'{{"{key}": "a", "{key}": "b"}}')
        assert answer.status_code == 400 and "stands twice in one object" in answer.json()["reason"]
    assert node.only_default()
