"""Which policy holds of an exchange or a queue: of those in its virtual host that fit its name, that of the highest
priority.

Nothing is kept with what is declared, so a change of a policy holds for what is declared and for what will be.
"""

from __future__ import annotations

from broker_plugin.embedded.rights.patterns import fits
from broker_plugin.embedded.rights.rights_book import RightsBook
from txobserver.policies import ALL, ALTERNATE_EXCHANGE, EXCHANGES, EXPIRES, QUEUES, Definition, Policy
from txobserver.rules import OPERATOR_POLICY, POLICIES, POLICY, Rule
from txobserver.vhosts import beside, parts_of

REMEMBERED = 10_000
"""Exchanges whose policies are remembered"""
EXPIRIES_REMEMBERED = 100_000
"""Queues for which it is remembered what policies say of them"""
EVERY_NAME = ".*"
"""What the empty pattern of a policy means, other than that of a permission"""


class Policies:
    """``rights``: where the policies stand. ``compared``: how many patterns names have been compared with by now."""

    def __init__(self, rights: RightsBook) -> None:
        self._rights = rights
        self._of: dict[tuple[str, str], list[Policy]] | None = None
        self._alternates: dict[str, str | None] = {}
        self._expiries: dict[str, int | None] = {}
        self.compared = 0

    def forget(self) -> None:
        """A policy may have changed."""
        self._of = None
        self._alternates.clear()
        self._expiries.clear()

    def alternate_of(self, exchange: str) -> str | None:
        """The full name of the alternate exchange that a policy gives to an exchange, by its full name."""
        if exchange not in self._alternates:
            if len(self._alternates) >= REMEMBERED:
                self._alternates.clear()
            given = self._said(POLICY, EXCHANGES, exchange).get(ALTERNATE_EXCHANGE)
            self._alternates[exchange] = beside(exchange, given) if isinstance(given, str) else None
        return self._alternates[exchange]

    def expiry_of(self, queue: str) -> int | None:
        """Milliseconds after which a queue goes, by its full name, if it is not used: the smaller of what a policy and
        an operator policy say. None: neither says that it goes."""
        if queue not in self._expiries:
            if len(self._expiries) >= EXPIRIES_REMEMBERED:
                self._expiries.clear()
            given = [self._said(kind, QUEUES, queue).get(EXPIRES) for kind in (POLICY, OPERATOR_POLICY)]
            self._expiries[queue] = min((each for each in given if isinstance(each, int)), default=None)
        return self._expiries[queue]

    def let_expire(self) -> bool:
        """Whether any policy says that queues go."""
        return any(EXPIRES in each.definition for policies in self._known().values() for each in policies)

    def _said(self, kind: str, of: str, full_name: str) -> Definition:
        vhost, name = parts_of(full_name)
        for policy in self._known().get((kind, vhost), ()):
            self.compared += 1
            if policy.apply_to in (of, ALL) and fits(policy.pattern or EVERY_NAME, name):
                return policy.definition
        return {}

    def _known(self) -> dict[tuple[str, str], list[Policy]]:
        """By kinds and virtual hosts; those with a higher priority come first, and among equals the first by name."""
        if self._of is None:
            access = self._rights.access
            rules = [] if access is None else [each for each in access().rules.values() if each.kind in POLICIES]
            self._of = {}
            for rule in sorted(rules, key=_precedence):
                if isinstance(rule.value, Policy):
                    self._of.setdefault((rule.kind, rule.vhost), []).append(rule.value)
        return self._of


def _precedence(rule: Rule) -> tuple[int, str]:
    return -rule.value.priority if isinstance(rule.value, Policy) else 0, rule.name
