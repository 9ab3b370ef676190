"""exchange.declare, exchange.delete, and auto-delete exchanges."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, NamedTuple

from broker_plugin.embedded.errors import AmqpError, located, not_configured, precondition, refused, type_name
from broker_plugin.embedded.operations.equivalence import EXCHANGE_ARGUMENTS, check_arguments, check_flag
from broker_plugin.embedded.operations.pending import Pending
from broker_plugin.embedded.operations.requester import Requester
from broker_plugin.embedded.rights.rights import CONFIGURE, EXCHANGE, READ, WRITE
from broker_plugin.embedded.serving import Serving
from broker_plugin.embedded.topology.exchange import KINDS, Exchange
from broker_plugin.embedded.topology.sizes import queue_bytes
from txobserver.configuration import (
    ExchangeSpec,
    delete_exchange_step,
    exchange_step,
    leave_exchange_step,
)
from txobserver.vhosts import beside, local_name


class ExchangeDeclare(NamedTuple):
    """A declaration."""

    name: str
    kind: str
    durable: bool = False
    auto_delete: bool = False
    internal: bool = False
    arguments: Mapping[str, Any] = {}


Reply = Callable[[], None]
(_ALTERNATE,) = EXCHANGE_ARGUMENTS


def check_not_default(name: str) -> None:
    """403 for the default exchange, which no client declares, deletes or binds."""
    if not local_name(name):
        raise refused("operation not permitted on the default exchange")


def _check_alternate(request: ExchangeDeclare) -> None:
    """406 for an alternate exchange that is no name."""
    alternate = request.arguments.get(_ALTERNATE, "")
    if not isinstance(alternate, str):
        kind, where = type_name(alternate), located("exchange", request.name)
        raise precondition(f"invalid type '{kind}' for arg '{_ALTERNATE}' in {where}")


class ExchangeOperations:
    """What clients do to exchanges as a whole."""

    def __init__(self, broker: Serving) -> None:
        self._broker = broker
        self._leaves = Pending()
        self._leaving: dict[str, int] = {}

    def declare(self, channel: Requester, request: ExchangeDeclare, reply: Reply) -> None:
        """exchange.declare."""
        check_not_default(request.name)
        if request.kind not in KINDS:
            raise AmqpError(503, f"unknown exchange type '{request.kind}'")
        _check_alternate(request)
        channel.owner.rights.check(CONFIGURE, EXCHANGE, request.name)
        operation = partial(channel.attempt, partial(self._declare, channel, request, reply))
        self._broker.locks.run(("exchange", request.name), operation)

    def declare_passive(self, name: str) -> None:
        """exchange.declare with ``passive``: 404 if it is not there."""
        check_not_default(name)
        self._broker.topology.exchange(name)

    def _declare(self, channel: Requester, request: ExchangeDeclare, reply: Reply) -> None:
        name = request.name
        channel.owner.rights.check(CONFIGURE, EXCHANGE, name)
        there = self._broker.topology.exchanges.get(name)
        if there is not None:
            self._check_equivalent(there, request)
            reply()
        elif local_name(name).startswith("amq."):
            raise refused(f"exchange name '{local_name(name)}' contains reserved prefix 'amq.*'")
        else:
            alternate = request.arguments.get(_ALTERNATE)
            if alternate is not None:
                channel.owner.rights.check(READ, EXCHANGE, name)
                channel.owner.rights.check(WRITE, EXCHANGE, beside(name, alternate))
            self._broker.topology.check_room(queue_bytes(name, request.arguments))
            self._add(channel, request, reply)

    def _add(self, channel: Requester, request: ExchangeDeclare, reply: Reply) -> None:
        name, kind, durable, auto_delete, internal, arguments = request
        if durable:
            step = exchange_step(ExchangeSpec(name, kind, auto_delete, internal, dict(arguments)))
            self._configure(name, channel, partial(self._tell_declared, request, reply), step)
        else:
            self._broker.topology.add_exchange(Exchange(name, kind, False, auto_delete, internal, arguments))
            reply()

    def _configure(self, name: str, channel: Requester, reply: Reply, step: Any) -> None:
        key = ("exchange", name)
        self._broker.locks.hold(key)

        def done(error: str | None) -> None:
            if error is not None:
                channel.fail(not_configured("exchange", name, error))
            else:
                channel.attempt(reply)
            self._broker.locks.release(key)

        self._broker.ledger.configure(step, done)

    def _tell_declared(self, request: ExchangeDeclare, reply: Reply) -> None:
        """An import may have declared another one of this name meanwhile: 406 then."""
        there = self._broker.topology.exchanges.get(request.name)
        if there is not None:
            self._check_equivalent(there, request)
        reply()

    def _check_equivalent(self, there: Exchange, request: ExchangeDeclare) -> None:
        name = there.name
        if there.kind != request.kind:
            raise precondition(
                f"inequivalent arg 'type' for {located('exchange', name)}:"
                f" received '{request.kind}' but current is '{there.kind}'"
            )
        check_flag("exchange", name, "durable", request.durable, there.durable)
        check_flag("exchange", name, "auto_delete", request.auto_delete, there.auto_delete)
        check_flag("exchange", name, "internal", request.internal, there.internal)
        check_arguments("exchange", name, request.arguments, there.arguments, EXCHANGE_ARGUMENTS)

    def delete(self, channel: Requester, name: str, if_unused: bool, reply: Reply) -> None:
        """exchange.delete. A missing exchange is deleted already."""
        check_not_default(name)
        if local_name(name).startswith("amq."):
            raise refused(f"deletion of system {located('exchange', name)} not allowed")
        channel.owner.rights.check(CONFIGURE, EXCHANGE, name)
        operation = partial(channel.attempt, partial(self._delete, channel, name, if_unused, reply))
        names = [("exchange", name)]
        if if_unused:  # what is on its way for where it leads to may take its bindings
            names += [("queue" if to.to_queue else "exchange", to.name) for to in self._broker.topology.reached(name)]
        self._broker.turn.looked_at(len(names))
        self._broker.locks.run_all(names, operation)

    def _delete(self, channel: Requester, name: str, if_unused: bool, reply: Reply) -> None:
        channel.owner.rights.check(CONFIGURE, EXCHANGE, name)
        topology = self._broker.topology
        there = topology.exchanges.get(name)
        if there is None:
            reply()
        elif if_unused and (there.local_bindings if there.durable else topology.bindings_from(name)):
            raise precondition(f"{located('exchange', name)} in use")
        elif there.durable:
            left = partial(self.when_left, channel, reply)
            self._configure(name, channel, left, delete_exchange_step(name, if_unused))
        else:
            self.lost_bindings(topology.remove_exchange(name))
            self.when_left(channel, reply)

    def lost_bindings(self, sources: Iterable[str], left: str | None = None) -> None:
        """These exchanges lost a binding: an auto-delete exchange goes with its last one.

        A durable one goes where the stream takes its last binding; here the stream is told that nothing but what it
        holds is bound to the exchange any more. ``left``: the exchange of which the stream was told that, and which has
        taken these bindings with it.
        """
        topology = self._broker.topology
        cause = None if left is None else self._leaving.get(left)
        todo = list(sources)
        while todo:
            name = todo.pop()
            there = topology.exchanges.get(name)
            if there is None or not there.auto_delete:
                continue
            if there.durable:
                self._broker.locks.run(("exchange", name), partial(self._leave, name, self._leaves.begin(cause)))
            elif not topology.bindings_from(name):
                todo.extend(topology.remove_exchange(name))

    def when_left(self, channel: Requester, reply: Reply) -> None:
        """Answer what took a binding when the auto-delete exchanges have gone that went with it."""
        self._leaves.then(partial(channel.attempt, reply))

    def take_over(self) -> None:
        """This node becomes active: nothing is on its way of what an earlier primary has begun."""
        self._leaves = Pending()
        self._leaving = {}

    def lost_binding(self, name: str) -> None:
        """What was bound to this exchange at an earlier primary only has gone with it."""
        self.lost_bindings([name])

    def _leave(self, name: str, leave: int) -> None:
        there = self._broker.topology.exchanges.get(name)
        if there is None or there.local_bindings or not self._broker.active or not self.is_used(name):
            self._leaves.end(leave)
            return
        key = ("exchange", name)
        self._broker.locks.hold(key)
        self._leaving[name] = leave

        def done(error: str | None) -> None:
            del self._leaving[name]
            self._leaves.end(leave)
            self._broker.locks.release(key)

        self._broker.ledger.configure(leave_exchange_step(name), done)

    def is_used(self, name: str) -> bool:
        """Whether the stream knows that something is bound to this auto-delete exchange which it does not hold."""
        spec = self._broker.content.configuration.exchanges.get(name)
        return spec is not None and spec.used
