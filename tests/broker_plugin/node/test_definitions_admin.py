"""What a node answers to who imports definitions: whose it is, and which part could not be."""

from __future__ import annotations

import json
import secrets
import zlib
from base64 import b64encode
from typing import Any

import pytest

from broker_plugin.admin.server import CommandRefused
from broker_plugin.definitions.state import packed_steps, unpacked_state, unpacked_steps
from recovery.reader.node_admin import LONGEST_LINE, MAX_LINE, request_lines
from tests.broker_plugin.definitions.held_node import HeldNode
from txobserver.access import delete_user_step, put_user_step
from txobserver.batch import MOST_BYTES, MOST_PARTS
from txobserver.configuration import BindingSpec, binding_step, delete_queue_step, queue_step
from txobserver.events import Configure
from txobserver.rules import PERMISSION, VHOST, Permission, Rule, Vhost, clear_rule_step, set_rule_step
from txobserver.vhosts import full_name

SOME = Permission("", "", "")
BY = {"user": "ada", "address": "10.0.0.1"}
V = Rule(VHOST, "v", "v", "", Vhost())


@pytest.fixture
def node() -> HeldNode:
    return HeldNode()


def load(node: HeldNode, *steps: Configure, by: Any = BY) -> Any:
    return node.ask("definitions.load", {"steps": packed_steps(steps), "by": by})


def test_what_is_held_is_told_whole(node: HeldNode) -> None:
    load(node, put_user_step("u", "h", ("t",)), queue_step("q", False, {"x": 1}))
    state = unpacked_state(node.ask("definitions.state", {})["state"])
    assert state == node.held.state and [spec.name for spec in state.queues] == ["q"]


def test_an_import_says_whose_it_is(node: HeldNode) -> None:
    assert load(node, put_user_step("u", "h", ()), queue_step("q", False, {})) == {"steps": 2}
    (change,) = node.held.contents.access.changes
    assert (change.user, change.address, change.node, change.operation) == ("ada", "10.0.0.1", "b", "definitions.load")
    assert json.loads(change.after) == {"user.put": ["u"], "queue.declare": ["q"]}


REFUSED: dict[str, tuple[list[Configure], list[Configure], str]] = {
    "a user that is gone": (
        [put_user_step("u", "h", ())],
        [delete_user_step("u")],
        "permission of 'u': there is no such user",
    ),
    "a virtual host that is going": (
        [put_user_step("u", "h", ()), set_rule_step(V), queue_step(full_name("v", "q"), False, {})],
        [clear_rule_step(VHOST, "v", "v")],
        "queue 'x' in virtual host 'v': there is no such virtual host",
    ),
    "a queue that is gone": (
        [put_user_step("u", "h", ()), queue_step("q", False, {})],
        [delete_queue_step("q")],
        "binding of 'q' to 'amq.topic': what it leads to is not there",
    ),
    "a queue that is another": (
        [put_user_step("u", "h", ())],
        [queue_step("r", True, {})],
        "queue 'r': it is there already, and declared otherwise",
    ),
}


@pytest.mark.parametrize(("first", "meanwhile", "sentence"), REFUSED.values(), ids=REFUSED)
def test_a_part_that_cannot_be_any_more_is_named(
    first: list[Configure], meanwhile: list[Configure], sentence: str, node: HeldNode
) -> None:
    """It was there when the file was read."""
    load(node, *first)
    node.before = meanwhile
    wanted = {
        "permission": set_rule_step(Rule(PERMISSION, "/", "u", "", SOME)),
        "queue 'x'": queue_step(full_name("v", "x"), False, {}),
        "binding": binding_step(BindingSpec("amq.topic", "q", True, "", {})),
        "queue 'r'": queue_step("r", False, {}),
    }
    step = next(step for start, step in wanted.items() if sentence.startswith(start))
    with pytest.raises(CommandRefused) as refused:
        load(node, step)
    assert str(refused.value) == f"nothing was imported: {sentence}"


@pytest.mark.parametrize(
    "steps", [None, 7, "", "!", "eJwDAAAAAAE=", packed_steps([Configure(0, "x", "y", b"\0" * MOST_BYTES)])]
)
def test_what_is_no_import_is_refused(steps: Any, node: HeldNode) -> None:
    """The last one is small as it comes, and not as it is unpacked."""
    before = node.held.contents.configuration.last_id
    with pytest.raises(CommandRefused, match="these are no steps of an import"):
        node.ask("definitions.load", {"steps": steps})
    assert node.held.contents.configuration.last_id == before


def test_an_import_has_a_size_that_it_may_have_and_no_byte_more() -> None:
    """The stream of bytes ends where it says so, whatever came out of it."""

    def packed(size: int) -> str:
        return b64encode(zlib.compress(bytes(size))).decode()

    assert len(unpacked_steps(packed(MOST_BYTES))) == MOST_BYTES
    with pytest.raises(ValueError, match="it has more than"):
        unpacked_steps(packed(MOST_BYTES + 1))
    with pytest.raises(ValueError, match="does not end"):
        unpacked_steps(b64encode(zlib.compress(bytes(10))[:-1]).decode())


def test_the_largest_import_fits_in_a_line() -> None:
    steps = [queue_step("q", False, {"a": secrets.token_bytes(MOST_BYTES - 100)})]
    request = {"steps": packed_steps(steps), "by": BY}
    assert MAX_LINE < sum(len(line) for line in request_lines("t" * 32, "definitions.load", request)) < LONGEST_LINE


def test_more_than_one_import_can_have_is_refused(node: HeldNode) -> None:
    """Whoever has sent it, and whatever has read the file."""
    with pytest.raises(CommandRefused, match=f"{MOST_PARTS + 1} steps; one import has {MOST_PARTS} at most: split it"):
        load(node, *[queue_step("q", False, {})] * (MOST_PARTS + 1))
    assert not node.held.contents.configuration.queues


def test_what_cannot_be_a_part_is_refused(node: HeldNode) -> None:
    with pytest.raises(CommandRefused, match="no part of it is a"):
        load(node, delete_user_step("u"))


@pytest.mark.parametrize("command", ["definitions.state", "definitions.load"])
def test_a_host_broker_has_users_of_its_own(command: str) -> None:
    with pytest.raises(CommandRefused, match="users of its own"):
        HeldNode(logins=None).ask(command, {"steps": packed_steps([])})
