"""Which policy holds of an exchange: of those in its virtual host that fit its name, that of the highest priority.

Nothing is kept with an exchange, so a change of a policy holds for what is declared and for what will be.
"""

from __future__ import annotations

from broker_plugin.embedded.rights.patterns import fits
from broker_plugin.embedded.rights.rights_book import RightsBook
from txobserver.rules import ALTERNATE_EXCHANGE, Policy
from txobserver.vhosts import beside, parts_of

REMEMBERED = 10_000
"""Exchanges whose policies are remembered"""
EVERY_NAME = ".*"
"""What the empty pattern of a policy means, other than that of a permission"""


class Policies:
    """``rights``: where the policies stand."""

    def __init__(self, rights: RightsBook) -> None:
        self._rights = rights
        self._of: dict[str, list[Policy]] | None = None
        self._alternates: dict[str, str | None] = {}

    def forget(self) -> None:
        """A policy may have changed."""
        self._of = None
        self._alternates.clear()

    def alternate_of(self, exchange: str) -> str | None:
        """The full name of the alternate exchange that a policy gives to an exchange, by its full name."""
        if exchange not in self._alternates:
            if len(self._alternates) >= REMEMBERED:
                self._alternates.clear()
            self._alternates[exchange] = self._found(exchange)
        return self._alternates[exchange]

    def _found(self, exchange: str) -> str | None:
        vhost, name = parts_of(exchange)
        for policy in self._known().get(vhost, ()):
            if fits(policy.pattern or EVERY_NAME, name):
                return beside(exchange, policy.definition[ALTERNATE_EXCHANGE])
        return None

    def _known(self) -> dict[str, list[Policy]]:
        """By virtual hosts; those with a higher priority come first, and among equals the first by name."""
        if self._of is None:
            access = self._rights.access
            rules = {} if access is None else access().rules
            found = [(-rule.value.priority, rule) for rule in rules.values() if isinstance(rule.value, Policy)]
            self._of = {}
            for _, rule in sorted(found, key=lambda each: (each[0], each[1].name)):
                if isinstance(rule.value, Policy):
                    self._of.setdefault(rule.vhost, []).append(rule.value)
        return self._of
