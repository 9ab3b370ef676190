"""A channel of the tiny broker: declarations, publishes, deliveries, acknowledgements, transactions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple, Protocol
from uuid import uuid4

from pamqp import base, commands

from tests.support.tiny_host.queues import TinyBroker, TinyQueue, done_in
from txha.spi import (
    BindingSpec,
    Configure,
    Done,
    ExchangeSpec,
    Message,
    Refusal,
    RemoteLedger,
    RemoteTransaction,
    Removal,
    binding_step,
    delete_exchange_step,
    delete_queue_step,
    exchange_step,
    queue_step,
)


class Refused(Exception):
    """Closes the channel."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code, self.text = code, text[:250]


class Held(NamedTuple):
    """A message in a client's hands."""

    queue: TinyQueue
    offset: int
    rid: int


class Outlet(Protocol):
    """The connection."""

    def send(self, channel: int, *frames: base.Frame) -> None: ...

    def content(self, channel: int, method: base.Frame, properties: bytes, data: bytes) -> None: ...


class TinyChannel:
    """Many methods: one for each method of AMQP."""

    def __init__(self, broker: TinyBroker, outlet: Outlet, number: int) -> None:
        self._broker = broker
        self._outlet = outlet
        self._number = number
        self._tags = self._published = 0
        self._prefetch = 0
        self._unacked: dict[int, Held] = {}
        self._consumers: dict[str, tuple[TinyQueue, Callable[[], bool]]] = {}
        self._mode = ""
        self._transaction: RemoteTransaction | None = None
        self._settled: dict[int, tuple[Held, bool]] = {}
        """In the open transaction, by tag: whether it goes back"""
        self._left = False
        self._do: dict[type[base.Frame], Callable[[Any], Coroutine[Any, Any, base.Frame | None]]] = {
            commands.Queue.Declare: self._declare,
            commands.Queue.Delete: self._delete,
            commands.Queue.Bind: self._bind,
            commands.Queue.Purge: self._purge,
            commands.Exchange.Declare: self._exchange,
            commands.Exchange.Delete: self._delete_exchange,
            commands.Basic.Qos: self._qos,
            commands.Basic.Get: self._get,
            commands.Basic.Consume: self._consume,
            commands.Basic.Cancel: self._cancel,
            commands.Basic.Ack: lambda m: self._settle(m.delivery_tag, m.multiple, False),
            commands.Basic.Nack: lambda m: self._settle(m.delivery_tag, m.multiple, m.requeue),
            commands.Basic.Reject: lambda m: self._settle(m.delivery_tag, False, m.requeue),
            commands.Tx.Select: lambda m: self._select("tx", commands.Tx.SelectOk()),
            commands.Tx.Commit: self._commit,
            commands.Tx.Rollback: self._rollback,
            commands.Confirm.Select: lambda m: self._select("confirm", commands.Confirm.SelectOk()),
        }

    async def take(self, method: base.Frame) -> None:
        """Carry out a method. Raises Refused."""
        do = self._do.get(type(method))
        if do is None:
            raise Refused(540, f"this broker has no {method.name}")
        answer = await do(method)
        if answer is not None:
            self._outlet.send(self._number, answer)

    def leave(self) -> None:
        """The channel is over: its transaction is rolled back, and what it holds goes back."""
        self._left = True
        for queue, want in self._consumers.values():
            queue.wants.pop(want, None)
        if self._transaction is not None:
            self._transaction.rollback(lambda error: None)
        self._give_back([*self._unacked.values(), *(held for held, _ in self._settled.values())])
        self._unacked, self._settled = {}, {}

    @property
    def _ledger(self) -> RemoteLedger:
        if self._broker.ledger is None:
            raise ConnectionError("this node is not the primary")
        return self._broker.ledger

    async def _ask(self, ask: Callable[[Done], None]) -> str | None:
        answer: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()
        ask(done_in(answer))
        return await answer

    async def _queue(self, name: str) -> TinyQueue:
        await self._broker.loaded()
        queue = self._broker.named(name)
        if queue is None:
            raise Refused(404, f"NOT_FOUND - no queue '{name}' in vhost '/'")
        return queue

    def _give_back(self, held: list[Held]) -> None:
        for each in held:
            each.queue.give_back([each.offset])
        for queue in {id(each.queue): each.queue for each in held}.values():
            self._broker.pump(queue)

    # -- declarations

    async def _configure(self, step: Configure) -> None:
        error = await self._ask(lambda done: self._ledger.configure(step, done))
        if error is not None and not isinstance(error, Refusal):
            raise Refused(406, f"PRECONDITION_FAILED - {error}")

    async def _declare(self, method: commands.Queue.Declare) -> base.Frame:
        await self._broker.loaded()
        name = method.queue or f"tiny-{uuid4().hex}"
        if (not method.durable and not method.passive) or method.exclusive:
            raise Refused(540, "NOT_IMPLEMENTED - this broker has durable queues only")
        if not method.passive and self._broker.named(name) is None:
            await self._configure(queue_step(name, False, {}))
        queue = await self._queue(name)
        return commands.Queue.DeclareOk(name, queue.ready, len(queue.wants))

    async def _delete(self, method: commands.Queue.Delete) -> base.Frame:
        queue = self._broker.named(method.queue)
        if queue is not None:
            await self._configure(delete_queue_step(method.queue))
        return commands.Queue.DeleteOk(queue.ready if queue else 0)

    async def _bind(self, method: commands.Queue.Bind) -> base.Frame:
        await self._queue(method.queue)
        await self._configure(binding_step(BindingSpec(method.exchange, method.queue, True, method.routing_key, {})))
        return commands.Queue.BindOk()

    async def _purge(self, method: commands.Queue.Purge) -> base.Frame:
        queue = await self._queue(method.queue)
        queue.held = True
        spared = [(offset, queue.messages[offset][0]) for offset in queue.out if offset in queue.messages]
        count = queue.ready
        error = await self._ask(lambda done: self._ledger.purge(queue.number, (1 << 63) - 1, spared, done))
        queue.held = False
        self._broker.pump(queue)
        if error is not None:
            raise Refused(406, f"PRECONDITION_FAILED - {error}")
        return commands.Queue.PurgeOk(count)

    async def _exchange(self, method: commands.Exchange.Declare) -> base.Frame:
        if method.exchange_type not in ("fanout", "direct") or not method.durable:
            raise Refused(540, "NOT_IMPLEMENTED - this broker has durable fanout and direct exchanges only")
        await self._configure(exchange_step(ExchangeSpec(method.exchange, method.exchange_type, False, False, {})))
        return commands.Exchange.DeclareOk()

    async def _delete_exchange(self, method: commands.Exchange.Delete) -> base.Frame:
        await self._configure(delete_exchange_step(method.exchange))
        return commands.Exchange.DeleteOk()

    # -- publishing

    async def publish(self, method: commands.Basic.Publish, properties: bytes, data: bytes) -> None:
        """A message with its content. Raises Refused."""
        queues = self._broker.route(method.exchange, method.routing_key)
        if queues is None:
            raise Refused(404, f"NOT_FOUND - no exchange '{method.exchange}' in vhost '/'")
        if not queues and method.mandatory:
            returned = commands.Basic.Return(312, "NO_ROUTE", method.exchange, method.routing_key)
            self._outlet.content(self._number, returned, properties, data)
        message = Message(method.exchange, method.routing_key, properties, data)
        numbers = [queue.number for queue in queues]
        if self._mode == "tx":
            if numbers:
                self._work().enqueue(numbers, message)
            return
        self._published += 1
        self._ledger.publish(numbers, message, self._confirming(self._published) if self._mode == "confirm" else None)

    def _confirming(self, tag: int) -> Done:
        def done(error: str | None) -> None:
            if not self._left:
                confirm = commands.Basic.Ack(tag) if error is None else commands.Basic.Nack(tag)
                self._outlet.send(self._number, confirm)

        return done

    # -- deliveries

    async def _qos(self, method: commands.Basic.Qos) -> base.Frame:
        self._prefetch = method.prefetch_count
        return commands.Basic.QosOk()

    def _hold(self, queue: TinyQueue, offset: int, no_ack: bool) -> tuple[int, Message, bool]:
        rid, message, redelivered = queue.take(offset)
        self._tags += 1
        if no_ack:
            self._ledger.settle(queue.number, [(offset, rid)], Removal.ACKED)
        else:
            self._unacked[self._tags] = Held(queue, offset, rid)
        return self._tags, message, redelivered

    async def _get(self, method: commands.Basic.Get) -> base.Frame | None:
        queue = await self._queue(method.queue)
        got: asyncio.Future[int] = asyncio.get_running_loop().create_future()

        def want() -> bool:
            if got.done():
                return False
            first = queue.first()
            assert first is not None
            got.set_result(first)
            queue.out.add(first)
            return True

        if queue.first() is None:
            return commands.Basic.GetEmpty()
        queue.wants[want] = lambda: not got.done()
        self._broker.pump(queue)
        try:
            offset = await got
        finally:
            queue.wants.pop(want, None)
        tag, message, redelivered = self._hold(queue, offset, method.no_ack)
        answer = commands.Basic.GetOk(tag, redelivered, message.exchange, message.routing_key, queue.ready)
        self._outlet.content(self._number, answer, message.properties, message.body)
        return None

    async def _consume(self, method: commands.Basic.Consume) -> None:
        queue = await self._queue(method.queue)
        tag = method.consumer_tag or f"tiny-{uuid4().hex}"

        def room() -> bool:
            held = len(self._unacked) + len(self._settled)
            return method.no_ack or not self._prefetch or held < self._prefetch

        def want() -> bool:
            first = queue.first()
            if first is None or not room():
                return False
            number, message, redelivered = self._hold(queue, first, method.no_ack)
            deliver = commands.Basic.Deliver(tag, number, redelivered, message.exchange, message.routing_key)
            self._outlet.content(self._number, deliver, message.properties, message.body)
            return True

        self._outlet.send(self._number, commands.Basic.ConsumeOk(tag))
        self._consumers[tag] = (queue, want)
        queue.wants[want] = room
        self._broker.pump(queue)

    async def _cancel(self, method: commands.Basic.Cancel) -> base.Frame:
        tag = method.consumer_tag or ""
        queue, want = self._consumers.pop(tag)
        queue.wants.pop(want, None)
        return commands.Basic.CancelOk(tag)

    async def _settle(self, tag: int, multiple: bool, back: bool) -> None:
        tags = [each for each in self._unacked if each <= tag or not tag] if multiple else [tag]
        if not multiple and tag not in self._unacked:
            raise Refused(406, f"PRECONDITION_FAILED - unknown delivery tag {tag}")
        for each in tags:
            held = self._unacked.pop(each)
            if self._mode == "tx":
                self._settled[each] = (held, back)
                if not back:
                    self._work().dequeue(held.queue.number, [(held.offset, held.rid)])
            elif back:
                self._give_back([held])
            else:
                self._ledger.settle(held.queue.number, [(held.offset, held.rid)], Removal.ACKED)
                self._broker.pump(held.queue)
        for queue, _ in self._consumers.values():
            self._broker.pump(queue)

    # -- transactions

    async def _select(self, mode: str, answer: base.Frame) -> base.Frame:
        if self._mode not in ("", mode):
            raise Refused(406, f"PRECONDITION_FAILED - cannot switch from {self._mode} to {mode} mode")
        self._mode = mode
        return answer

    def _work(self) -> RemoteTransaction:
        if self._transaction is None:
            self._transaction = self._ledger.begin(lambda error: None)
        return self._transaction

    def _check_transactional(self) -> None:
        if self._mode != "tx":
            raise Refused(406, "PRECONDITION_FAILED - channel is not transactional")

    async def _commit(self, method: commands.Tx.Commit) -> base.Frame:
        self._check_transactional()
        transaction, self._transaction = self._transaction, None
        if transaction is not None:
            error = await self._ask(transaction.commit)
            if error is not None:
                raise Refused(406, f"PRECONDITION_FAILED - {error}")
        settled, self._settled = self._settled, {}
        self._give_back([held for held, back in settled.values() if back])
        for queue, _ in self._consumers.values():
            self._broker.pump(queue)
        return commands.Tx.CommitOk()

    async def _rollback(self, method: commands.Tx.Rollback) -> base.Frame:
        self._check_transactional()
        transaction, self._transaction = self._transaction, None
        if transaction is not None:
            await self._ask(transaction.rollback)
        self._unacked.update({tag: held for tag, (held, _) in self._settled.items()})
        self._settled = {}
        return commands.Tx.RollbackOk()
