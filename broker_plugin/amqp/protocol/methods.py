"""What a client may ask on a channel, method by method (AMQP 0-9-1 and RabbitMQ's extensions to it)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import msgspec
from pamqp import base, commands
from pamqp.commands import Basic, Confirm, Exchange, Queue, Tx

from broker_plugin.amqp.protocol.answering import Answering
from broker_plugin.amqp.protocol.codec import (
    encode_commit_ok,
    encode_content,
    encode_declare_ok,
    encode_get_ok,
    encode_method,
)
from broker_plugin.amqp.protocol.dtx_handlers import DTX_HANDLERS
from broker_plugin.embedded.channels.channel import Got
from broker_plugin.embedded.errors import AmqpError
from broker_plugin.embedded.operations.binding_operations import BindRequest
from broker_plugin.embedded.operations.exchange_operations import ExchangeDeclare
from broker_plugin.embedded.operations.queue_arguments import QueueDeclare
from broker_plugin.embedded.operations.queue_operations import QueueState
from txobserver.vhosts import full_name, local_name

Handler = Callable[[Answering, Any], None]


def plain(arguments: Mapping[str, Any] | None) -> dict[str, Any]:
    """Arguments in the form in which the stream keeps them, so that what is compared later compares equal."""
    if not arguments:
        return {}
    try:
        decoded: dict[str, Any] = msgspec.msgpack.decode(msgspec.msgpack.encode(arguments))
    except (TypeError, ValueError, OverflowError) as error:
        raise AmqpError(502, f"cannot keep these arguments: {error}") from None
    return decoded


def name(text: str) -> str:
    """A name as RabbitMQ reads it: without line ends."""
    return text.replace("\r", "").replace("\n", "")


def full(channel: Answering, text: str) -> str:
    """The full name of what a client names."""
    return full_name(channel.inner.vhost, name(text))


def queue_name(channel: Answering, text: str) -> str:
    """A queue's full name; an empty one stands for the queue that this channel declared last."""
    if text:
        return full(channel, text)
    if not channel.last_queue:
        raise AmqpError(404, "no previously declared queue")
    return full_name(channel.inner.vhost, channel.last_queue)


def _answer(channel: Answering, method: base.Frame, nowait: bool = False) -> None:
    channel.answer(None if nowait else encode_method(method, channel.number))


# -- channel


def _channel_open(channel: Answering, method: commands.Channel.Open) -> None:
    raise AmqpError(504, "second 'channel.open' seen", hard=True)


def _channel_close(channel: Answering, method: commands.Channel.Close) -> None:
    channel.close()


def _channel_flow(channel: Answering, method: commands.Channel.Flow) -> None:
    if not method.active:
        raise AmqpError(540, "active=false", hard=True)
    _answer(channel, commands.Channel.FlowOk(True))


# -- exchange


def _exchange_declare(channel: Answering, method: Exchange.Declare) -> None:
    operations = channel.broker.operations.exchanges
    reply = partial(_answer, channel, Exchange.DeclareOk(), method.nowait)
    if method.passive:
        operations.declare_passive(full(channel, method.exchange))
        reply()
        return
    request = ExchangeDeclare(
        full(channel, method.exchange),
        method.exchange_type,
        method.durable,
        method.auto_delete,
        method.internal,
        plain(method.arguments),
    )
    channel.wait()
    operations.declare(channel.inner, request, reply)


def _exchange_delete(channel: Answering, method: Exchange.Delete) -> None:
    reply = partial(_answer, channel, Exchange.DeleteOk(), method.nowait)
    channel.wait()
    channel.broker.operations.exchanges.delete(channel.inner, full(channel, method.exchange), method.if_unused, reply)


def _exchange_binding(channel: Answering, method: Exchange.Bind | Exchange.Unbind) -> BindRequest:
    ends = full(channel, method.source), full(channel, method.destination)
    return BindRequest(*ends, False, method.routing_key, plain(method.arguments))


def _exchange_bind(channel: Answering, method: Exchange.Bind) -> None:
    request = _exchange_binding(channel, method)
    channel.wait()
    reply = partial(_answer, channel, Exchange.BindOk(), method.nowait)
    channel.broker.operations.bindings.bind(channel.inner, request, reply)


def _exchange_unbind(channel: Answering, method: Exchange.Unbind) -> None:
    request = _exchange_binding(channel, method)
    channel.wait()
    reply = partial(_answer, channel, Exchange.UnbindOk(), method.nowait)
    channel.broker.operations.bindings.unbind(channel.inner, request, reply)


# -- queue


def _queue_declare(channel: Answering, method: Queue.Declare) -> None:
    operations = channel.broker.operations.queues
    reply = partial(_queue_declared, channel, method.nowait)
    channel.wait()
    if method.passive:
        operations.declare_passive(channel.inner, full(channel, method.queue), reply)
        return
    request = QueueDeclare(
        full(channel, method.queue), method.durable, method.exclusive, method.auto_delete, plain(method.arguments)
    )
    operations.declare(channel.inner, request, reply)


def _queue_declared(channel: Answering, nowait: bool, state: QueueState) -> None:
    channel.last_queue = local_name(state.name)
    state = state._replace(name=channel.last_queue)
    channel.answer(None if nowait else encode_declare_ok(channel.number, *state))


def _bind_names(channel: Answering, method: Queue.Bind | Queue.Unbind) -> tuple[str, str]:
    """The queue's full name and the routing key; both empty stand for the last declared queue and its name."""
    queue = queue_name(channel, method.queue)
    return queue, channel.last_queue if not method.queue and not method.routing_key else method.routing_key


def _queue_bind(channel: Answering, method: Queue.Bind) -> None:
    queue, key = _bind_names(channel, method)
    request = BindRequest(full(channel, method.exchange), queue, True, key, plain(method.arguments))
    channel.wait()
    reply = partial(_answer, channel, Queue.BindOk(), method.nowait)
    channel.broker.operations.bindings.bind(channel.inner, request, reply)


def _queue_unbind(channel: Answering, method: Queue.Unbind) -> None:
    queue, key = _bind_names(channel, method)
    request = BindRequest(full(channel, method.exchange), queue, True, key, plain(method.arguments))
    channel.wait()
    reply = partial(_answer, channel, Queue.UnbindOk())
    channel.broker.operations.bindings.unbind(channel.inner, request, reply)


def _queue_purge(channel: Answering, method: Queue.Purge) -> None:
    channel.wait()
    channel.broker.operations.queues.purge(
        channel.inner,
        queue_name(channel, method.queue),
        lambda count: _answer(channel, Queue.PurgeOk(count), method.nowait),
    )


def _queue_delete(channel: Answering, method: Queue.Delete) -> None:
    channel.wait()
    channel.broker.operations.deletions.delete(
        channel.inner,
        queue_name(channel, method.queue),
        method.if_unused,
        method.if_empty,
        lambda count: _answer(channel, Queue.DeleteOk(count), method.nowait),
    )


# -- basic


def _basic_qos(channel: Answering, method: Basic.Qos) -> None:
    if method.prefetch_size:
        raise AmqpError(540, f"prefetch_size!=0 ({method.prefetch_size})", hard=True)
    channel.inner.qos(method.prefetch_count, method.global_)
    _answer(channel, Basic.QosOk())


def _basic_consume(channel: Answering, method: Basic.Consume) -> None:
    queue, arguments = queue_name(channel, method.queue), plain(method.arguments)
    channel.wait()
    reply = partial(_consuming, channel, method.nowait)
    channel.inner.consume(queue, method.consumer_tag, method.no_ack, method.exclusive, arguments, reply)


def _consuming(channel: Answering, nowait: bool, tag: str) -> None:
    channel.expect_deliveries(tag)
    _answer(channel, Basic.ConsumeOk(tag), nowait)


def _basic_cancel(channel: Answering, method: Basic.Cancel) -> None:
    channel.inner.cancel(method.consumer_tag or "")
    channel.expect_no_deliveries(method.consumer_tag or "")
    _answer(channel, Basic.CancelOk(method.consumer_tag), method.nowait)


def _basic_get(channel: Answering, method: Basic.Get) -> None:
    queue = queue_name(channel, method.queue)
    channel.wait()
    channel.inner.get(queue, method.no_ack, partial(_got, channel))


def _got(channel: Answering, got: Got | None) -> None:
    if got is None:
        _answer(channel, Basic.GetEmpty())
        return
    message, connection = got.message, channel.connection
    origin = connection.origin(message.exchange, message.routing_key)
    answer = encode_get_ok(channel.number, got.delivery_tag, got.redelivered, origin, got.remaining)
    content = encode_content(channel.number, message.properties, message.body, connection.frame_max)
    channel.answer(answer + content)


def _delivery_tag(method: Basic.Reject | Basic.Nack) -> int:
    """AMQP's longlong has no sign; pamqp reads one."""
    tag: int = method.delivery_tag or 0
    return tag % (1 << 64)


def _basic_reject(channel: Answering, method: Basic.Reject) -> None:
    channel.inner.reject(_delivery_tag(method), False, method.requeue)


def _basic_nack(channel: Answering, method: Basic.Nack) -> None:
    channel.wait()
    channel.inner.reject(_delivery_tag(method), method.multiple, method.requeue, partial(channel.answer, None))


def _basic_recover_async(channel: Answering, method: Basic.RecoverAsync) -> None:
    if not method.requeue:
        raise AmqpError(540, "requeue=false", hard=True)
    channel.wait()
    channel.inner.recover(partial(channel.answer, None))


def _basic_recover(channel: Answering, method: Basic.Recover) -> None:
    if not method.requeue:
        raise AmqpError(540, "requeue=false", hard=True)
    channel.wait()
    channel.inner.recover(partial(_answer, channel, Basic.RecoverOk()))


# -- confirm and tx


def _confirm_select(channel: Answering, method: Confirm.Select) -> None:
    channel.inner.mode.select_confirms()
    _answer(channel, Confirm.SelectOk(), method.nowait)


def _tx_select(channel: Answering, method: Tx.Select) -> None:
    channel.inner.mode.select_tx()
    _answer(channel, Tx.SelectOk())


def commit(channel: Answering) -> None:
    """tx.commit."""
    channel.wait()
    channel.inner.commit(partial(channel.answer, encode_commit_ok(channel.number)))


def _tx_rollback(channel: Answering, method: Tx.Rollback) -> None:
    channel.wait()
    channel.inner.rollback(partial(_answer, channel, Tx.RollbackOk()))


HANDLERS: dict[int, Handler] = {
    commands.Channel.Open.index: _channel_open,
    commands.Channel.Close.index: _channel_close,
    commands.Channel.Flow.index: _channel_flow,
    Exchange.Declare.index: _exchange_declare,
    Exchange.Delete.index: _exchange_delete,
    Exchange.Bind.index: _exchange_bind,
    Exchange.Unbind.index: _exchange_unbind,
    Queue.Declare.index: _queue_declare,
    Queue.Bind.index: _queue_bind,
    Queue.Unbind.index: _queue_unbind,
    Queue.Purge.index: _queue_purge,
    Queue.Delete.index: _queue_delete,
    Basic.Qos.index: _basic_qos,
    Basic.Consume.index: _basic_consume,
    Basic.Cancel.index: _basic_cancel,
    Basic.Get.index: _basic_get,
    Basic.Reject.index: _basic_reject,
    Basic.Nack.index: _basic_nack,
    Basic.RecoverAsync.index: _basic_recover_async,
    Basic.Recover.index: _basic_recover,
    Confirm.Select.index: _confirm_select,
    Tx.Select.index: _tx_select,
    Tx.Rollback.index: _tx_rollback,
    **DTX_HANDLERS,
}
