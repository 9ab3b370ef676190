"""Which tag of a user each route wants: all routes, so that a new one is not forgotten."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from starlette.routing import Route
from starlette.testclient import TestClient

from broker_plugin.http import routes
from broker_plugin.http.app import operators_app
from broker_plugin.http.asking import CHANGES
from tests.broker_plugin.http.fake_node import PASSWORDS, FakeNode, basic, let_in

OPEN = """
GET /health/live
GET /health/ready
"""
MANAGEMENT = """
GET /api/whoami
GET /api/vhosts
GET /api/vhost-limits
GET /api/vhost-limits/{name}
GET /api/user-limits
GET /api/user-limits/{name}
GET /api/health/checks/alarms
GET /api/health/checks/local-alarms
GET /api/health/checks/node-is-quorum-critical
GET /api/health/checks/port-listener/{port}
GET /api/health/checks/protocol-listener/{protocol}
GET /api/health/checks/virtual-hosts
"""
POLICYMAKER = """
GET /api/policies
GET /api/policies/{vhost}
GET /api/policies/{vhost}/{name}
PUT /api/policies/{vhost}/{name}
DELETE /api/policies/{vhost}/{name}
GET /api/operator-policies
GET /api/operator-policies/{vhost}
GET /api/operator-policies/{vhost}/{name}
"""
MONITORING = """
GET /api/nodes
GET /api/nodes/{name}
GET /api/txha/calls
GET /api/txha/nodes
GET /api/txha/ready-set
GET /metrics
GET /metrics/per-object
"""
ADMINISTRATOR = """
GET /api/users
GET /api/users/{name}
PUT /api/users/{name}
DELETE /api/users/{name}
GET /api/permissions
GET /api/permissions/{vhost}/{user}
PUT /api/permissions/{vhost}/{user}
DELETE /api/permissions/{vhost}/{user}
GET /api/users/{user}/permissions
GET /api/vhosts/{vhost}/permissions
GET /api/topic-permissions
GET /api/topic-permissions/{vhost}/{user}
PUT /api/topic-permissions/{vhost}/{user}
DELETE /api/topic-permissions/{vhost}/{user}
DELETE /api/topic-permissions/{vhost}/{user}/{exchange}
GET /api/users/{user}/topic-permissions
GET /api/vhosts/{vhost}/topic-permissions
GET /api/vhosts/{vhost}
PUT /api/vhosts/{vhost}
DELETE /api/vhosts/{vhost}
PUT /api/vhost-limits/{name}/{limit}
DELETE /api/vhost-limits/{name}/{limit}
PUT /api/user-limits/{name}/{limit}
DELETE /api/user-limits/{name}/{limit}
PUT /api/operator-policies/{vhost}/{name}
DELETE /api/operator-policies/{vhost}/{name}
GET /api/definitions
POST /api/definitions
GET /api/definitions/{vhost}
POST /api/definitions/{vhost}
GET /api/txha/changes
"""
TAGGED = {
    OPEN: {"ada", "mon", "pol", "man", "none"},
    MANAGEMENT: {"ada", "mon", "pol", "man"},
    POLICYMAKER: {"ada", "pol"},
    MONITORING: {"ada", "mon"},
    ADMINISTRATOR: {"ada"},
}
"""By what a route wants: the users whose tags do"""
WANTED = [(line, users) for routes, users in TAGGED.items() for line in routes.split("\n") if line]


def test_all_routes_are_here() -> None:
    routes = [each for each in operators_app(FakeNode()).routes if isinstance(each, Route)]
    there = [f"{method} {each.path}" for each in routes for method in (each.methods or set()) - {"HEAD"}]
    assert sorted(there) == sorted(line for line, _ in WANTED)


@pytest.mark.parametrize(("route", "users"), WANTED, ids=[line for line, _ in WANTED])
def test_a_route_wants_a_tag(route: str, users: set[str]) -> None:
    """Without it nothing is asked of the node but who that is."""
    method, path = route.split(" ")
    for user in PASSWORDS:
        node = FakeNode()
        client = TestClient(operators_app(node), client=("127.0.0.1", 5000), raise_server_exceptions=False)
        answer = client.request(method, path.replace("{", "").replace("}", ""), json={}, headers=basic(user))
        assert (answer.status_code == 401) == (user not in users), f"{user}: {answer.text}"
        if user not in users:
            assert {command for command, _ in node.asked} == {"door.login"}
        for command in CHANGES:
            assert all(each["login"] == let_in(user) for each in node.given(command)), "the node is to judge it again"


def test_no_route_asks_for_a_change_but_with_the_login_that_is_judged_again() -> None:
    text = "".join(path.read_text() for path in Path(routes.__file__).parent.glob("*.py"))
    assert set(re.findall(r'asking\.change\("([\w.]+)"', text)) == CHANGES
    assert not CHANGES & set(re.findall(r'\.ask\("([\w.]+)"', text))
