"""What a node answers to who asks for its users and changes them."""

from __future__ import annotations

from typing import Any

import pytest

from broker_plugin.admin.server import CommandRefused
from tests.broker_plugin.definitions.held_node import HeldNode
from txobserver.access import put_user_step
from txobserver.rules import USER_LIMIT, VHOST_LIMIT, Limit, Rule, set_rule_step

BY = {"user": "ada", "address": "10.0.0.1"}


@pytest.fixture
def node() -> HeldNode:
    node = HeldNode()
    for name in ("/", "bob"):
        node.held.do(put_user_step(name, "h", ("t",)))
    return node


def shown(node: HeldNode) -> dict[str, Any]:
    return {each["name"]: each["limits"] for each in node.ask("users.list", {})}


def test_a_user_is_shown_with_limits_of_his_own(node: HeldNode) -> None:
    """A virtual host of his name has limits as well."""
    for kind, vhost, name in ((USER_LIMIT, "", "bob"), (VHOST_LIMIT, "/", "/")):
        assert node.held.do(set_rule_step(Rule(kind, vhost, name, "max-connections", Limit(3)))).refusal is None
    assert shown(node) == {"/": {}, "bob": {"max-connections": 3}}


@pytest.mark.parametrize("hash_", ["secret", "scrypt$", "rabbit_password_hashing_sha256$AAAA", "x$y$z"])
@pytest.mark.parametrize("command", ["users.add", "users.put", "users.passwd"])
def test_what_is_no_hash_is_kept_as_no_password(command: str, hash_: str, node: HeldNode) -> None:
    """It may be a password in clear, which is kept nowhere and told to nobody."""
    with pytest.raises(CommandRefused, match="of no kind that this node knows") as refused:
        node.ask(command, {"name": "bob", "hash": hash_, "by": BY})
    assert hash_ not in str(refused.value)
    assert node.held.contents.access.users["bob"].hash == "h"
