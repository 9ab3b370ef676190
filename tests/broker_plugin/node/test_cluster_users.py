"""How the users of a node's own configuration become the cluster's, and what is said of them afterwards."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import SecretStr

from broker_plugin.amqp.protocol.passwords import is_current, matches
from broker_plugin.node.cluster_users import (
    ClusterUsers,
    UsersTakeOver,
    check_own_users,
    hashed_users,
    names_users,
    renewed_hash,
    untrue,
)
from broker_plugin.node.config import Amqp, ConfigError
from tests.broker_plugin.amqp.protocol.test_passwords import OLDER, of_rabbitmq
from txobserver.access import Access, User, add_user_step
from txobserver.events import Configure
from txobserver.refusal import Refusal
from txobserver.rules import PERMISSION, Permission, place

OWN = {"app": "s3cret", "old": OLDER, "rabbit": of_rabbitmq("sha256", "right")}


def applied(step: Configure, access: Access | None = None) -> Access:
    access = access or Access()
    access.apply(Configure(access.last + 1, step.operation, step.name, step.arguments))
    return access


class Node:
    """As much of a node as takes users over. Threads are this one; what is reported is told at once."""

    def __init__(self, own: dict[str, str], named: bool = True) -> None:
        self.access = Access()
        self.now = 0.0
        self.lacking: list[str] = []
        self.asked: list[Configure] = []
        self.said: list[Any] = []
        attachments = SimpleNamespace(lacking=lambda feature: self.lacking)
        self.leading: Any = SimpleNamespace(backups=SimpleNamespace(attachments=attachments))
        contents = SimpleNamespace(access=self.access)
        self.core: Any = SimpleNamespace(
            replica=SimpleNamespace(contents=contents), leading=self.leading, state="active", configure=self._configure
        )
        guard: Any = SimpleNamespace(loop=SimpleNamespace(time=lambda: self.now), run_in_executor=self._run)
        self.take_over = UsersTakeOver(guard, self.core, own, named, lambda call: call())

    def _run(self, executor: Any, job: Any, then: Any) -> None:
        then(SimpleNamespace(result=job))

    def _configure(self, step: Configure, done: Any) -> None:
        self.asked.append(step)
        self.done = done

    def look(self) -> None:
        self.now += 1
        self.take_over.look()


def test_a_primary_all_of_whose_nodes_know_users_takes_its_own_over_once() -> None:
    node = Node(OWN)
    node.lacking = ["b"]
    node.look()
    node.core.leading = None
    node.lacking = []
    node.look()
    node.core.leading, node.core.state = node.leading, "recovering"
    node.look()
    assert node.asked == []
    node.core.state = "active"
    for _ in range(3):
        node.look()
    (step,) = node.asked
    node.done("no")
    node.look()
    assert len(node.asked) == 2, "it asks again"
    applied(step, node.access)
    node.done(None)
    node.look()
    assert len(node.asked) == 2 and set(node.access.users) == set(OWN)


def test_passwords_are_hashed_and_hashes_are_kept() -> None:
    users = applied(hashed_users(OWN, True)).users
    assert is_current(users["app"].hash) and matches(users["app"].hash, "s3cret")
    assert (users["old"].hash, users["rabbit"].hash) == (OWN["old"], OWN["rabbit"])
    step = hashed_users(OWN, True)
    assert b"s3cret" not in step.arguments


def test_logins_go_by_the_stream_as_soon_as_it_holds_users() -> None:
    access = Access()
    book = ClusterUsers(lambda: access, OWN)
    assert book.get("app") == "s3cret" and book.get("new") is None
    applied(add_user_step("new", "hash"), access)
    assert book.get("app") is None and book.get("new") == "hash"


def config(**given: Any) -> Amqp:
    return Amqp(port=1, **given)


def test_what_was_taken_over_may_stand_where_it_was_and_nothing_else_may() -> None:
    """A node starts again with the file that it had; one that says something else would have no effect."""
    access = applied(hashed_users({"app": "s3cret"}, True))
    named = config(users={"app": SecretStr("s3cret")})
    assert names_users(named) and not names_users(config())
    check_own_users(access, named, {"app": "s3cret"})
    for other in ({"app": "another"}, {"app": "s3cret", "more": "x"}, {}):
        with pytest.raises(
            ConfigError, match=r"have no effect: the cluster keeps its users itself; remove the key"
        ) as no:
            check_own_users(access, named, other)
        assert "s3cret" not in str(no.value)
    check_own_users(access, config(), {"guest": "guest"})
    check_own_users(Access(), named, {"app": "another"})


def test_a_node_that_was_not_set_up_leaves_nothing_to_stand() -> None:
    access = applied(hashed_users({"guest": "guest"}, False))
    assert access.source == "" and set(access.users) == {"guest"}
    assert untrue(access, {"guest": "guest"}) is not None


@pytest.mark.parametrize(("own", "named", "said"), [(OWN, True, 0), ({"x": "y"}, True, 1), ({"x": "y"}, False, 0)])
def test_a_backup_says_so_once_if_its_own_file_is_not_what_counts(
    own: dict[str, str], named: bool, said: int, caplog: pytest.LogCaptureFixture
) -> None:
    node = Node(own, named)
    applied(hashed_users(OWN, True), node.access)
    for _ in range(3):
        node.look()
    assert caplog.text.count("have no effect") == said and node.asked == []


def test_a_hash_that_a_login_has_made_anew_takes_the_place_of_the_one_it_verified() -> None:
    node = Node(OWN)
    renewed = renewed_hash(node.core, lambda call: call())
    taken: list[bool] = []
    renewed("app", "s3cret", "fresh", taken.append)
    assert taken == [False], "the users are those of the node's own configuration still"
    applied(add_user_step("app", "weak"), node.access)
    renewed("app", "other", "fresh", taken.append)
    renewed("gone", "weak", "fresh", taken.append)
    assert node.asked == [] and taken == [False, True, True]
    renewed("app", "weak", "fresh", taken.append)
    (step,) = node.asked
    node.done("this node knows no primary at the moment; ask again")
    assert taken[3:] == [False]
    renewed("app", "weak", "fresh", taken.append)
    node.done(None)
    assert taken[4:] == [True]
    assert applied(step, node.access).users["app"] == User("app", "fresh", (), 1)
    changed = applied(add_user_step("app", "changed"))
    assert changed.apply(Configure(2, step.operation, step.name, step.arguments)) is Refusal.CHANGED


def test_the_user_of_a_node_that_was_not_set_up_is_an_administrator_and_no_other_is() -> None:
    for named, tags in ((False, ("administrator",)), (True, ())):
        access = applied(hashed_users({"guest": "guest"}, named))
        assert access.users["guest"].tags == tags
        assert access.rules[place(PERMISSION, "/", "guest", "")].value == Permission(".*", ".*", ".*")
