"""What a step about rules comes to where it is applied. A table is replaced, never changed: copies share it."""

from __future__ import annotations

from collections.abc import Container

import msgspec

from txobserver.events import Configure
from txobserver.refusal import Refusal
from txobserver.rules import MOST_RULES, OF_USERS, VHOST, VHOST_GONE, Rule, Vhost, place, place_of, rule_of

Rules = dict[str, Rule]
"""By their places"""


def rules_after(rules: Rules, step: Configure, users: Container[str], vacant: bool) -> tuple[Rules, Refusal | None]:
    """The table after a step, and why the step was not carried out. ``vacant``: nothing is declared in the virtual host
    that the step names."""
    rule = rule_of(step)
    if rule is not None:
        refusal = why_not_set(rules, rule, users)
        return ({**rules, rule.place: rule}, None) if refusal is None else (rules, refusal)
    where = place_of(step)
    there = rules.get(where)
    if there is None:
        return rules, Refusal.GONE
    if isinstance(there.value, Vhost):
        return _vhost_goes(rules, there, there.value, step, vacant)
    return {each: kept for each, kept in rules.items() if each != where}, None


def without_user(rules: Rules, user: str) -> Rules:
    """The table after the user has been deleted."""
    left = {each: rule for each, rule in rules.items() if rule.name != user or rule.kind not in OF_USERS}
    return left if len(left) < len(rules) else rules


def vhost_there(rules: Rules, vhost: str) -> bool:
    """Whether there is such a virtual host, and it is not being deleted."""
    rule = rules.get(place(VHOST, vhost, vhost, ""))
    return rule is not None and isinstance(rule.value, Vhost) and not rule.value.going


def vhosts_going(rules: Rules) -> list[str]:
    """The virtual hosts that are being deleted."""
    return [rule.name for rule in rules.values() if isinstance(rule.value, Vhost) and rule.value.going]


def why_not_set(rules: Rules, rule: Rule, users: Container[str]) -> Refusal | None:
    """Why a rule cannot be set; None if it can."""
    if rule.kind in OF_USERS and rule.name not in users:
        return Refusal.GONE
    there = rules.get(rule.place)
    if rule.kind == VHOST and there is not None and not vhost_there(rules, rule.name):
        return Refusal.GOING
    if rule.kind != VHOST and rule.vhost and not vhost_there(rules, rule.vhost):
        return Refusal.NO_VHOST
    return Refusal.TOO_MANY if there is None and len(rules) >= MOST_RULES else None


def _vhost_goes(rules: Rules, rule: Rule, vhost: Vhost, step: Configure, vacant: bool) -> tuple[Rules, Refusal | None]:
    """A virtual host begins to be deleted, and all rules there go; or it has gone."""
    if (step.operation == VHOST_GONE) != vhost.going:
        return rules, Refusal.GONE
    left = {each: kept for each, kept in rules.items() if kept.vhost != rule.name}
    if step.operation == VHOST_GONE:
        return (left, None) if vacant else (rules, Refusal.NOT_EMPTY)
    left[rule.place] = msgspec.structs.replace(rule, value=msgspec.structs.replace(vhost, going=True))
    return left, None
