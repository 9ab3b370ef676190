"""queue.bind, queue.unbind, exchange.bind, exchange.unbind."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from broker_plugin.embedded.durable_queue import DurableQueue
from broker_plugin.embedded.errors import precondition
from broker_plugin.embedded.exchange_operations import check_not_default
from broker_plugin.embedded.queue_operations import check_access
from broker_plugin.embedded.routers import Destination, check_headers_binding
from broker_plugin.embedded.topology import Binding, binding
from txobserver.configuration import BindingSpec, binding_step

if TYPE_CHECKING:
    from broker_plugin.embedded.broker import Broker
    from broker_plugin.embedded.channel import Channel

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

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def bind(self, channel: Channel, request: BindRequest, reply: Reply) -> None:
        """Add a binding; one that is there already is no error."""
        wanted = self._binding(channel, request)
        topology = self._broker.topology
        if topology.exchange(request.source).kind == "headers":
            check_headers_binding(request.arguments)
        if topology.known(wanted) is not None:
            reply()
        elif wanted.durable:
            self._configure(channel, request, True, reply)
        else:
            topology.bind(wanted)
            reply()

    def unbind(self, channel: Channel, request: BindRequest, reply: Reply) -> None:
        """Remove a binding; one that is not there is no error."""
        wanted = self._binding(channel, request, must_exist=False)
        known = self._broker.topology.known(wanted)
        if known is None:
            reply()
        elif known.durable:
            self._configure(channel, request, False, reply)
        else:
            self._broker.topology.unbind(known)
            reply()
            self._broker.exchange_operations.lost_bindings([known.source])

    def _configure(self, channel: Channel, request: BindRequest, bind: bool, reply: Reply) -> None:
        spec = BindingSpec(*request[:4], dict(request.arguments))
        check = partial(self._bound, channel, request) if bind else _nothing

        def done(error: str | None) -> None:
            if error is not None:
                channel.fail(precondition(error))
            else:
                channel.attempt(check)
                if not channel.closed:
                    reply()

        self._broker.ledger.configure(binding_step(spec, bind), done)

    def _bound(self, channel: Channel, request: BindRequest) -> None:
        """404 if one of the ends was deleted while the binding was on its way."""
        self._binding(channel, request)

    def _binding(self, channel: Channel, request: BindRequest, must_exist: bool = True) -> Binding:
        """The binding that is meant. 404 if an end is missing, 403 for the default exchange, 405 if locked."""
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
        wanted = binding(source, Destination(to_queue, destination), key, arguments, durable)
        queue = topology.queues.get(destination) if to_queue else None
        if queue is not None and (must_exist or topology.known(wanted) is not None):
            check_access(queue, channel.session)
        return wanted


def _nothing() -> None:
    """An unbinding has no ends that must be there."""
