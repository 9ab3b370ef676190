"""queue.bind, queue.unbind, exchange.bind, exchange.unbind."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

from broker_plugin.embedded.errors import AmqpError, not_configured, precondition
from broker_plugin.embedded.operations.exchange_operations import ExchangeOperations, check_not_default
from broker_plugin.embedded.operations.requester import Requester
from broker_plugin.embedded.queues.durable_queue import DurableQueue
from broker_plugin.embedded.rights.rights import EXCHANGE, QUEUE, READ, WRITE
from broker_plugin.embedded.serving import Serving, check_access
from broker_plugin.embedded.topology.routers import Destination, check_headers_binding
from broker_plugin.embedded.topology.topology import Binding, binding
from txobserver.configuration import BindingSpec, Refusal, binding_step, use_exchange_step

Reply = Callable[[], None]


class BindRequest(NamedTuple):
    """A binding from ``source`` to a queue or exchange."""

    source: str
    destination: str
    to_queue: bool
    key: str
    arguments: Mapping[str, Any] = {}


class BindingOperations:
    """What clients do to bindings. A binding is replicated when both its ends are."""

    def __init__(self, broker: Serving, exchanges: ExchangeOperations) -> None:
        self._broker = broker
        self._exchanges = exchanges

    def bind(self, channel: Requester, request: BindRequest, reply: Reply) -> None:
        """Add a binding; one that is there already is no error."""
        self._when_free(channel, request, partial(self._bind, channel, request, reply))

    def unbind(self, channel: Requester, request: BindRequest, reply: Reply) -> None:
        """Remove a binding; one that is not there is no error."""
        self._when_free(channel, request, partial(self._unbind, channel, request, reply))

    def _when_free(self, channel: Requester, request: BindRequest, operation: Reply) -> None:
        """What is on its way for one of the ends comes first. 403 if the user may not."""
        self._check_rights(channel, request)
        self._broker.locks.run_all(_ends(request), partial(channel.attempt, operation))

    def _check_rights(self, channel: Requester, request: BindRequest) -> None:
        """What takes messages in is written to, and what gives them is read."""
        rights, kind = channel.owner.rights, QUEUE if request.to_queue else EXCHANGE
        rights.check(WRITE, kind, request.destination)
        if not request.to_queue:
            check_not_default(request.destination)
        check_not_default(request.source)
        rights.check(READ, EXCHANGE, request.source)
        if self._broker.topology.is_topic(request.source):
            rights.check_topic(READ, request.source, request.key)

    def _bind(self, channel: Requester, request: BindRequest, reply: Reply) -> None:
        self._check_rights(channel, request)
        wanted = self._binding(channel, request)
        topology = self._broker.topology
        source = topology.exchange(request.source)
        if topology.known(wanted) is not None:
            reply()
            return
        topology.check_room(wanted.size)
        if wanted.durable:
            spec = BindingSpec(*request[:4], dict(request.arguments))
            self._broker.ledger.configure(binding_step(spec), partial(self._bound, channel, request, reply))
        elif source.durable and source.auto_delete and not self._exchanges.is_used(source.name):
            self._use(channel, request, reply)
        else:
            topology.bind(wanted)
            reply()

    def _bound(self, channel: Requester, request: BindRequest, reply: Reply, error: str | None) -> None:
        """404 if one of the ends was deleted before the binding had its turn in the stream."""
        if error == Refusal.NO_DESTINATION:
            channel.fail(not_configured("queue" if request.to_queue else "exchange", request.destination, error))
        elif error is not None:
            channel.fail(not_configured("exchange", request.source, error))
        elif not channel.closed:
            reply()

    def _use(self, channel: Requester, request: BindRequest, reply: Reply) -> None:
        """The stream must know that the exchange is used by what it does not hold, so that no step lets it lapse.

        From then on the binding counts, whether its client stays or not: an auto-delete exchange goes with the last
        binding that was there, and with no other.
        """
        ends = _ends(request)
        self._broker.locks.hold(*ends)

        def done(error: str | None) -> None:
            if error is not None:
                channel.fail(not_configured("exchange", request.source, error))
            else:
                self._bind_used(channel, request)
                if not channel.closed:
                    reply()
            self._broker.locks.release(*ends)
            self._exchanges.lost_bindings([request.source])  # if the other end went meanwhile

        self._broker.ledger.configure(use_exchange_step(request.source), done)

    def _bind_used(self, channel: Requester, request: BindRequest) -> None:
        """The destination goes without its lock where its connection or an auto-delete exchange ends: then the binding
        came before that, and has gone with it.
        """
        with suppress(AmqpError):
            self._broker.topology.bind(self._binding(channel, request))

    def _unbind(self, channel: Requester, request: BindRequest, reply: Reply) -> None:
        self._check_rights(channel, request)
        wanted = self._binding(channel, request, must_exist=False)
        known = self._broker.topology.known(wanted)
        if known is None:
            reply()
        elif known.durable:
            self._unbind_durable(channel, request, reply)
        else:
            self._broker.topology.unbind(known)
            self._exchanges.lost_bindings([known.source])
            self._exchanges.when_left(channel, reply)

    def _unbind_durable(self, channel: Requester, request: BindRequest, reply: Reply) -> None:
        """A request that declares or binds one of the ends meanwhile is answered by what is left of it."""
        ends = _ends(request)
        self._broker.locks.hold(*ends)

        def done(error: str | None) -> None:
            if error is not None:
                channel.fail(precondition(error))
            else:
                self._exchanges.when_left(channel, reply)
            self._broker.locks.release(*ends)

        spec = BindingSpec(*request[:4], dict(request.arguments))
        self._broker.ledger.configure(binding_step(spec, False), done)

    def _binding(self, channel: Requester, request: BindRequest, must_exist: bool = True) -> Binding:
        """The binding that is meant. 404 if an end is missing, 403 for the default exchange, 406 for arguments that the
        source does not take, 405 if locked; in this order, which is RabbitMQ's.
        """
        source, destination, to_queue, key, arguments = request
        topology = self._broker.topology
        check_not_default(source)
        if not to_queue:
            check_not_default(destination)
        durable = must_exist and topology.exchange(source).durable
        if must_exist and to_queue:
            durable = isinstance(topology.queue(destination), DurableQueue) and durable
        elif must_exist:
            durable = topology.exchange(destination).durable and durable
        if must_exist and topology.exchange(source).kind == "headers":
            check_headers_binding(arguments)
        wanted = binding(source, Destination(to_queue, destination), key, arguments, durable)
        queue = topology.queues.get(destination) if to_queue else None
        if queue is not None and (must_exist or topology.known(wanted) is not None):
            check_access(queue, channel.owner)
        return wanted


def _ends(request: BindRequest) -> tuple[tuple[str, str], ...]:
    """What the ends are locked by."""
    kind = "queue" if request.to_queue else "exchange"
    return tuple({("exchange", request.source): None, (kind, request.destination): None})
