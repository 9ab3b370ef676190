"""All clients of a node that it does not serve, and what becomes of one, by what the node is just then."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from broker_plugin.guard import Guard
from broker_plugin.node.clients import ClientService
from broker_plugin.node.descriptors import Room
from broker_plugin.node.link_secrets import introducer_of, introductions_of
from broker_plugin.node.passing import PassOn, Refuse, Verdict
from broker_plugin.node.passing_tls import PassingRefusals, SecureWay
from broker_plugin.node.proxy import FrontDoor
from broker_plugin.node.wiring import Parts
from ha.membership.node_state import ACTIVE
from ha.messages.greeting import INTRODUCTIONS, INTRODUCTIONS_TLS, Hello
from ha.messages.proof import LinkSecrets
from ha.outside import Outside


class Doors:
    """``secrets``: by which nodes introduce clients to each other. ``refuse``: while this node is not the primary,
    clients are refused, and not passed on. ``amqp``: they speak AMQP, and not the protocol of a host broker. To be made
    when ``clients`` is open. ``dialled`` gives the options of a connection to the primary that is encrypted, where this
    node has a certificate.
    """

    def __init__(
        self,
        guard: Guard,
        parts: Parts,
        clients: ClientService,
        room: Room,
        secrets: LinkSecrets,
        refuse: bool,
        amqp: bool = True,
        dialled: Callable[[], dict[str, Any]] | None = None,
    ) -> None:
        self._guard = guard
        self._parts = parts
        self._clients = clients
        self._room = room
        self._refuse = refuse
        self._amqp = amqp
        self._dialled = dialled
        self._refusals = PassingRefusals()
        hello = parts.links.hello
        self._introducer = introducer_of(secrets, hello.node, hello.cluster_id)
        clients.arrivals.introductions = introductions_of(secrets, hello.node, hello.cluster_id)
        self._doors: set[FrontDoor] = set()
        self._seen: object = None

    def open(self) -> FrontDoor:
        """For one more client."""
        clients = self._clients
        logins, arrivals = clients.logins, clients.arrivals
        told = self._refusals
        return FrontDoor(self._guard, self.decide, self._doors, self._room, logins, arrivals, self._amqp, told)

    def decide(self) -> Verdict:
        """What becomes of a client's connection."""
        core, shell, _, links = self._parts
        shell.look_at_clock()
        if core.leading is not None and core.leading.handover.draining:
            return None  # it waits for the next primary
        if core.state == ACTIVE and core.leading and core.leading.primary.point.serving:
            return self._clients.verdict(core.generation)
        if isinstance(core.role, Outside) or (self._refuse and core.state != ACTIVE):
            return Refuse()
        if (following := core.following) and following.backup.attached:
            greeting = links.greetings.get(following.backup.primary)
            if greeting is not None:
                # It is attached by what was greeted last, so this is what the primary knows.
                clear = INTRODUCTIONS in greeting.features and not self._introducer.by_certificate
                introducer, secure = self._introducer if clear else None, self._secure(greeting)
                where = greeting.amqp_host, greeting.amqp_port
                return PassOn(*where, core.generation, introducer, greeting.node, secure)
        return None

    def _secure(self, greeting: Hello) -> SecureWay | None:
        """How clients go to this primary by TLS; None where one of the two nodes has no certificate."""
        if self._dialled is None or INTRODUCTIONS_TLS not in greeting.features or not greeting.amqps_port:
            return None
        where = greeting.amqps_host, greeting.amqps_port
        return SecureWay(*where, greeting.node, greeting.cluster, self._introducer, self._dialled)

    def look(self) -> None:
        """At the end of a turn: something may have changed for them."""
        core = self._parts.core
        following = core.following
        outside = isinstance(core.role, Outside)
        state = (core.state, core.generation, following is not None and following.backup.attached, outside)
        if state != self._seen:
            self._seen = state
            for door in list(self._doors):
                if outside:
                    door.abort()  # it passes no client on to a cluster that it is no part of
                else:
                    door.look(core.generation)
