"""Operators who change users and their rules at any node, while nodes fail; and logins that make hashes anew."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.simulation.user_reference import UserReference
from txobserver.access import (
    User,
    add_user_step,
    delete_user_step,
    found_users_step,
    put_user_step,
    set_password_step,
    set_tags_step,
)
from txobserver.audited import Origin, audited_step
from txobserver.batch import load_step
from txobserver.configuration import BindingSpec, ExchangeSpec, binding_step, exchange_step, queue_step
from txobserver.events import Configure
from txobserver.policies import EXPIRES, QUEUES, Policy
from txobserver.rules import (
    MAX_CONNECTIONS,
    OPERATOR_POLICY,
    PERMISSION,
    POLICY,
    TOPIC_PERMISSION,
    USER_LIMIT,
    VHOST,
    Limit,
    Permission,
    Rule,
    TopicPermission,
    Vhost,
    clear_rule_step,
    set_rule_step,
    vhost_gone_step,
)

if TYPE_CHECKING:
    from tests.simulation.seen import Cluster, Process

NAMES = ("ann", "bob", "cem", "dot")
PAUSE = 0.01, 0.1
VHOSTS = ("v",)
LOADED = "loaded a", "loaded b", "loaded c"
"""Queues that only steps with parts declare"""
UNLABELLED = {
    *("user.delete", "permission.clear", "topic_permission.clear", "user_limit.clear"),
    *("vhost.clear", "vhost.gone", "policy.clear", "operator_policy.clear"),
}
"""Steps whose arguments have no room for a label"""
KEPT = 5
"""Changes of operators in the history: few, so that it is cut again and again"""


class UserOperator:
    """``waiting``: the requests that are not answered, with the process that was asked."""

    def __init__(self, cluster: Cluster, stream: UserReference, number: int) -> None:
        self.waiting: dict[int, Process] = {}
        self.stopping = False
        self._cluster = cluster
        self._stream = stream
        self._number = number
        self._chance = cluster.world.chance(f"users/{number}")
        self._asked = 0
        self._later()

    def _later(self) -> None:
        self._cluster.world.after(self._chance.uniform(*PAUSE), self._act)

    def _act(self) -> None:
        if self.stopping:
            return
        there = [process for process in self._cluster.running() if process.failed is None]
        if there:
            self._ask(self._chance.choice(there))
        self._later()

    def _ask(self, process: Process) -> None:
        self._asked += 1
        number = self._asked
        label = f"{self._number}/{number}"
        step = self._drawn(process, self._chance.choice(NAMES), label)
        name = step.name
        if step.operation in UNLABELLED:
            label = ""
        taken_away = f"{step.operation} {name}"
        if number % 2 and step.operation not in ("user.found", "vhost.gone"):
            operator = Origin(f"operator {self._number}", "10.0.0.1", process.name, number)
            step = audited_step(step, operator, KEPT)
        before = {each: self._stream.deletions[taken_away, each] for each in (None, "gone")}
        self.waiting[number] = process

        def done(error: str | None) -> None:
            self._cluster.world.say(process.name, f"answers {step.operation} {name} {label}: {error}")
            del self.waiting[number]
            self._cluster.truth.calls("user_answered", process, label, taken_away, before, error)

        process.operate(lambda: process.core.configure(step, done))

    def _drawn(self, process: Process, name: str, label: str) -> Configure:
        which = self._chance.random()
        if which < 0.3:
            return self._rule(name, label)
        if which < 0.55:
            return self._vhost(label)
        if which < 0.7:
            return self._load(name, label)
        what = self._chance.random()
        there = process.core.replica.contents.access.users.get(name)
        if what < 0.35:
            return (add_user_step if self._asked % 3 else put_user_step)(name, label, ("t",))
        if what < 0.6:
            return delete_user_step(name)
        if what < 0.75:
            return set_tags_step(name, (label,))
        if what < 0.97:
            return set_password_step(name, label, there.hash if there is not None and what > 0.85 else "")
        return found_users_step([User("own", "h")], label)

    def _rule(self, name: str, label: str) -> Configure:
        what = self._chance.random()
        if what < 0.4:
            vhost = self._chance.choice(("/", *VHOSTS))
            return set_rule_step(Rule(PERMISSION, vhost, name, "", Permission(label, "", "")))
        if what < 0.6:
            return set_rule_step(Rule(TOPIC_PERMISSION, "/", name, "amq.topic", TopicPermission(label, "")))
        if what < 0.7:
            number, asked = label.split("/")
            most = int(number) * 1_000_000 + int(asked)
            return set_rule_step(Rule(USER_LIMIT, "", name, MAX_CONNECTIONS, Limit(most)))
        if what < 0.85:
            return clear_rule_step(PERMISSION, "/", name)
        if what < 0.95:
            return clear_rule_step(TOPIC_PERMISSION, "/", name, "amq.topic")
        return clear_rule_step(USER_LIMIT, "", name, MAX_CONNECTIONS)

    def _load(self, name: str, label: str) -> Configure:
        """Many at once; some of them are not as what is there already, or lead nowhere."""
        vhost = self._chance.choice(("/", *VHOSTS))
        parts = [put_user_step(name, label, ("t",))]
        for queue in LOADED:
            if self._chance.random() < 0.5:
                parts.append(queue_step(queue, self._chance.random() < 0.1, {}))
        parts.append(exchange_step(ExchangeSpec("loaded", "direct", False, False, {})))
        destination = LOADED[0] if self._chance.random() < 0.9 else "absent"
        parts.append(binding_step(BindingSpec("loaded", destination, True, "", {})))
        parts.append(set_rule_step(Rule(PERMISSION, vhost, name, "", Permission(label, "", ""))))
        return load_step(parts)

    def _vhost(self, label: str) -> Configure:
        what, vhost = self._chance.random(), self._chance.choice(VHOSTS)
        if what < 0.15:
            return set_rule_step(self._policy(vhost, label))
        if what < 0.2:
            return clear_rule_step(self._chance.choice((POLICY, OPERATOR_POLICY)), vhost, "p")
        if what < 0.5:
            return set_rule_step(Rule(VHOST, vhost, vhost, "", Vhost(label)))
        return clear_rule_step(VHOST, vhost, vhost) if what < 0.75 else vhost_gone_step(vhost)

    def _policy(self, vhost: str, label: str) -> Rule:
        if self._chance.random() < 0.5:
            return Rule(POLICY, vhost, "p", "", Policy(label, 0, {"alternate-exchange": "e"}))
        return Rule(OPERATOR_POLICY, vhost, "p", "", Policy(label, 0, {EXPIRES: 1 + len(label)}, QUEUES))
